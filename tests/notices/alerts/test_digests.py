"""The digest of GPUs held idle, as it arrives at a mail server and at a webhook's receiver on loopback."""

from __future__ import annotations

import email
import json
from collections.abc import Iterator
from datetime import timedelta
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from clusters.models import Cluster, Node
from common.clock import now
from gpus.alerts.idle import held_idle
from gpus.models import GpuDevice, TelemetrySource
from notices.alerts import digests
from notices.channels import deliveries, services
from notices.models import Alert, Channel, Delivery
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
SECRET = "a secret of sixteen"


class Mails(ThreadingTCPServer):
    got: list[Any]


class Hooks(ThreadingHTTPServer):
    got: list[Any]


class MailServer(StreamRequestHandler):
    """SMTP server with as much of RFC 5321 as smtplib speaks without TLS and login."""

    server: Mails

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        for line in self.rfile:
            verb = line[:4].upper()
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                raw = b"".join(iter(lambda: self.rfile.readline().replace(b"\r\n.", b"\r\n"), b".\r\n"))
                self.server.got.append(email.message_from_bytes(raw, policy=default))
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            if verb == b"QUIT":
                return


class Hook(BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def listening(server: Mails | Hooks) -> Iterator[Mails | Hooks]:
    server.daemon_threads = True
    server.got = []
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def smtp(settings) -> Iterator[Mails | Hooks]:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_USE_TLS, settings.EMAIL_HOST_USER = "127.0.0.1", False, ""
    for server in listening(Mails(("127.0.0.1", 0), MailServer)):
        settings.EMAIL_PORT = server.server_address[1]
        yield server


@pytest.fixture
def receiver(settings) -> Iterator[Mails | Hooks]:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    yield from listening(Hooks(("127.0.0.1", 0), Hook))


@pytest.fixture
def cluster(clock) -> Cluster:
    return ClusterFactory(name="atlas", environment="production")


def idle(cluster: Cluster, pod: str, hours: float, *, gpus: int = 4, **figures: float) -> Alert:
    return Alert.objects.create(
        cluster=cluster, rule="held-idle", severity="warning", status="open", sentence="It holds GPUs.",
        subject_kind="pod", subject=pod, subject_name=pod, namespace=pod.partition("/")[0],
        began_at=now() - timedelta(hours=hours), figures={"gpus": gpus, "owner": "Job train", **figures},
    )  # fmt: skip


def channel(**fields: object) -> Channel:
    wanted = {"name": "ops", "what": ["digest"], "digest_hour": 12, "kind": "mail", "addresses": ["ops@example.com"]}
    return services.create(by=UserFactory(roles=["admin"]), **wanted | fields)


def send() -> int:
    count = digests.send_due()
    for pk in deliveries.due():
        deliveries.deliver(pk)
    return count


def body_of(mail: EmailMessage) -> str:
    return mail.get_content().replace("\r\n", "\n")


def test_each_namespace_with_its_hours_and_what_they_cost_arrives_once_a_day(smtp, cluster, clock, settings):
    settings.SETPOINT_GPU_CURRENCY = "EUR"
    channel(least_severity="critical")  # of alerts: this is none
    idle(cluster, "team/long", 72, price=2.5)
    idle(cluster, "team/part", 7, gpus=2, share=4 / 7, price=2.5)  # 3g and 1g of a GPU
    idle(cluster, "lab/free", 2, gpus=1)  # of a kind that has no price
    silent = idle(cluster, "lab/silent", 9)
    Alert.objects.filter(pk=silent.pk).update(silenced_until=now() + timedelta(days=1))
    assert send() == 1
    assert send() == 0
    (mail,) = smtp.got
    assert (mail["To"], mail["Subject"]) == ("ops@example.com", "[Setpoint] GPUs held idle: 7 now, in 2 namespaces")
    assert mail["Message-ID"].startswith(f"<{Delivery.objects.get().pk}@")
    body = body_of(mail)
    assert "Within a day: 102.0 GPU-hours, 250.00 EUR." in body
    assert "team: 6 GPUs now, 100.0 GPU-hours, 250.00 EUR in a day" in body
    assert "  atlas: team/long, Job train: 4 GPUs idle since 2026-11-18 12:00 UTC, 96.0 GPU-hours, 240.00 EUR" in body
    assert "team/part, Job train: 2 GPUs idle since 2026-11-21 05:00 UTC, 4.0 GPU-hours, 10.00 EUR" in body
    assert "lab: 1 GPU now, 2.0 GPU-hours in a day" in body
    assert "silent" not in body
    clock.forward(days=1)
    assert send() == 1
    assert len(smtp.got) == 2


def test_a_namespace_has_a_digest_of_its_own_by_webhook(receiver, cluster):
    url = f"http://127.0.0.1:{receiver.server_address[1]}/hook"
    hook = {"kind": "webhook", "url": url, "secret": SECRET, "addresses": []}
    channel(name="lab", namespaces=["lab"], **hook)
    channel(name="quiet", namespaces=["quiet"], **hook)  # nothing of theirs is idle: nothing is sent
    idle(cluster, "team/a", 5, price=3.0)
    idle(cluster, "lab/b", 5, gpus=1, price=3.0)
    assert send() == 1
    (digest,) = receiver.got
    assert (digest["event"], digest["gpus_now"], digest["gpu_hours"], digest["cost"], digest["currency"]) == (
        "digest", 1, 5.0, 15.0, "USD",
    )  # fmt: skip
    assert [(entry["namespace"], [pod["pod"] for pod in entry["pods"]]) for entry in digest["namespaces"]] == [
        ("lab", ["lab/b"])
    ]  # fmt: skip


def test_two_workers_at_once_send_one(smtp, cluster, monkeypatch):
    channel()
    idle(cluster, "team/a", 5)
    real, second = digests.compose, []

    def meanwhile(*arguments):
        if not second:
            second.append(None)
            second[0] = digests.send_due()
        return real(*arguments)

    monkeypatch.setattr(digests, "compose", meanwhile)
    assert send() == 1
    assert second == [0]
    assert len(smtp.got) == 1


def test_a_server_that_refuses_gets_the_same_one_again(smtp, cluster, clock, settings):
    channel()
    idle(cluster, "team/a", 5)
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 9
    assert send() == 1
    settings.EMAIL_PORT = port
    clock.forward(seconds=11)
    assert send() == 0
    (mail,) = smtp.got
    assert "team/a" in body_of(mail)
    assert Delivery.objects.get().status == "sent"


def test_what_an_alert_knows_of_a_pod_is_what_its_digest_costs(cluster, settings):
    settings.SETPOINT_GPU_PRICES = {"NVIDIA-A100-SXM4-80GB": 1.4}
    TelemetrySource.objects.create(cluster=cluster, state="well", read_at=now())
    node = Node.objects.create(cluster=cluster, uid="n", name="n", gpu_product="NVIDIA-A100-SXM4-80GB", gpu_count=2)
    for instance, profile, pods in (("1", "3g.40gb", ["a"]), ("2", "2g.20gb", ["a", "b"])):
        GpuDevice.objects.create(
            cluster=cluster, node=node, node_name="n", uuid="GPU-0", instance=instance, profile=profile,
            model="NVIDIA A100-SXM4-80GB", values={"engine": 0.0}, holders=[["team", pod, ""] for pod in pods],
        )  # fmt: skip
    (group,) = held_idle(cluster.pk, 5).conditions
    figures_by_pod = {member.name: member.figures for member in group.members}
    assert {pod: (figures["gpus"], figures["share"], figures["price"]) for pod, figures in figures_by_pod.items()} == {
        "team/a": (2, 0.5714, 1.4), "team/b": (1, 0.1429, 1.4),
    }  # fmt: skip
