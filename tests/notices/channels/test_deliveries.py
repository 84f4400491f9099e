"""Deliveries: their content, their signature, and the cost of a dead receiver: itself alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from django.core import mail

from audit import sealing
from audit import services as audit
from audit.models import Chain, Record
from common.clock import now
from common.errors import Invalid
from notices.alerts import digests, events
from notices.channels import audit_heads, deliveries, routing, services
from notices.models import Alert, Channel, Delivery
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db
SECRET = "a secret of sixteen"
Status = Delivery.Status


class Receiver:
    """A webhook's receiver on loopback: `answers` are the statuses of its next answers, then 200."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                mine.got.append((dict(self.headers), body))
                self.send_response(mine.answers.pop(0) if mine.answers else 200)
                self.send_header("Location", f"http://127.0.0.1:{mine.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> list[dict]:
        return [json.loads(body) for _, body in self.got]


@pytest.fixture
def receiver(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    found = Receiver()
    yield found
    found.http.shutdown()
    found.http.server_close()


@pytest.fixture
def admin(clock):
    return UserFactory(roles=["admin"])


@pytest.fixture
def cluster(clock):
    return ClusterFactory(name="atlas", environment="production")


def hook(admin, url="https://chat.example/hook", **fields):
    wanted = {"name": "chat", "kind": "webhook", "url": url, "what": ["alerts"], "secret": SECRET} | fields
    return services.create(by=admin, **wanted)


def alert(cluster, subject="n1", **fields):
    fields = {"rule": "drift", "severity": "warning", "status": "open", "sentence": "It is amiss."} | fields
    return Alert.objects.create(cluster=cluster, subject_kind="node", subject=subject, subject_name=subject, **fields)


def verified(secret, headers, body, at, tolerance=300):
    """Standard Webhooks' verification, by its specification: several signatures, their versions, the time."""
    names = {name.lower(): value for name, value in headers.items()}
    if abs(int(names["webhook-timestamp"]) - at) > tolerance:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join([names["webhook-id"].encode(), names["webhook-timestamp"].encode(), body])
    right = hmac.new(key, signed, "sha256").digest()
    for one in names["webhook-signature"].split(" "):
        version, _, text = one.partition(",")
        if version == "v1" and hmac.compare_digest(base64.b64decode(text), right):
            return True
    return False


@pytest.mark.parametrize(
    ("secret", "as_a_library_takes_it"),
    [
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        (SECRET, "whsec_" + base64.b64encode(SECRET.encode()).decode()),
    ],
)
def test_a_receiver_of_standard_webhooks_takes_it(receiver, admin, cluster, clock, secret, as_a_library_takes_it):
    channel = hook(admin, receiver.url, secret=secret)
    routing.tell_alerts(cluster.pk, [alert(cluster)], [])
    deliveries.deliver(channel.pk)
    ((headers, body),) = receiver.got
    at = int(clock.at.timestamp())

    assert verified(as_a_library_takes_it, headers, body, at)
    assert headers["webhook-id"] == json.loads(body)["id"]
    assert not verified(as_a_library_takes_it, headers, body + b" ", at)
    assert not verified("whsec_" + base64.b64encode(b"x" * 24).decode(), headers, body, at)
    assert not verified(as_a_library_takes_it, headers, body, at + 3600)


@pytest.mark.parametrize("secret", ["whsec_not base64!!!!!", "whsec_" + "A" * 12, "whsec_" + "A" * 400])
def test_a_secret_that_says_it_is_base64_is(admin, clock, secret):
    with pytest.raises(Invalid) as refusal:
        hook(admin, secret=secret)
    assert set(refusal.value.fields) == {"secret"}


def test_a_delivery_is_signed_over_its_time_and_its_bytes(receiver, admin, cluster, clock):
    channel = hook(admin, receiver.url)
    routing.tell_alerts(cluster.pk, [alert(cluster)], [])
    assert deliveries.due() == [channel.pk]
    assert deliveries.deliver(channel.pk) == 1
    ((headers, body),) = receiver.got
    row = Delivery.objects.get()
    stamp = headers["Setpoint-Timestamp"]
    expected = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert (headers["Setpoint-Signature"], headers["Setpoint-Event"]) == (f"v1={expected}", "alerts")
    assert int(stamp) == int(clock.at.timestamp())
    said = json.loads(body)
    assert headers["Setpoint-Delivery"] == said["id"] == str(row.pk)
    assert [one["subject"]["name"] for one in said["opened"]] == ["n1"]
    assert said["counts"] == {"opened": 1, "closed": 0}
    assert (row.status, row.tries, row.sent_at) == (Status.SENT, 1, clock.at)
    assert deliveries.due() == []


def test_what_is_not_taken_comes_again_later_each_time_under_the_same_id(receiver, admin, cluster, clock):
    channel = hook(admin, receiver.url)
    routing.queue(channel, "alerts", "x", {})
    receiver.answers = [503, 302, 500]
    waits = []
    for _ in range(4):
        assert deliveries.due() == [channel.pk]
        deliveries.deliver(channel.pk)
        assert deliveries.due() == []
        row = Delivery.objects.get()
        waits.append((row.due_at - clock.at).total_seconds())
        clock.forward(seconds=max(waits[-1], 0) + 1)
    assert waits[:3] == [10, 20, 40]
    assert len({headers["Setpoint-Delivery"] for headers, _ in receiver.got}) == 1
    assert (row.status, row.tries, row.error) == (Status.SENT, 4, "")
    assert len(receiver.got) == 4  # the redirect was not followed
    channel.refresh_from_db()
    assert (channel.failures, channel.failing_since, channel.error) == (0, None, "")


def test_a_dead_receiver_is_told_and_rests_and_the_others_go_on(receiver, admin, cluster, clock):
    dead = hook(admin, "http://127.0.0.1:9/hook", name="dead")
    well = hook(admin, receiver.url, name="well")
    for _ in range(3):
        routing.tell_alerts(cluster.pk, [alert(cluster, f"n{Alert.objects.count()}")], [])
    for pk in deliveries.due():
        deliveries.deliver(pk)
    assert len(receiver.got) == 3
    dead.refresh_from_db()
    assert (dead.failures, dead.failing_since) == (1, clock.at)  # one try, not three
    assert "refused" in dead.error
    assert deliveries.due() == []
    clock.forward(seconds=11)
    assert deliveries.due() == [dead.pk]
    well.refresh_from_db()
    assert well.sent_at


def test_two_workers_send_once_and_a_killed_one_costs_its_claim(receiver, admin, clock, monkeypatch):
    channel = hook(admin, receiver.url)
    routing.queue(channel, "alerts", "x", {})
    real, second = deliveries.transmit, []

    def meanwhile(*arguments):
        second.append((deliveries.due(), deliveries.deliver(channel.pk)))
        return real(*arguments)

    monkeypatch.setattr(deliveries, "transmit", meanwhile)
    assert deliveries.deliver(channel.pk) == 1
    assert second == [([], 0)]
    monkeypatch.setattr(deliveries, "transmit", real)
    routing.queue(channel, "alerts", "y", {})
    Channel.objects.update(claimed_until=now() + deliveries.CLAIM)  # and then it was killed
    assert deliveries.deliver(channel.pk) == 0
    clock.forward(seconds=deliveries.CLAIM.total_seconds() + 1)
    assert deliveries.deliver(channel.pk) == 1


def test_nobody_tries_longer_than_a_day_and_a_person_can_have_it_tried_again(receiver, admin, clock):
    channel = hook(admin, receiver.url)
    receiver.answers = [500]
    routing.queue(channel, "alerts", "x", {})
    deliveries.deliver(channel.pk)
    clock.forward(hours=25)
    assert deliveries.give_up() == 1
    assert deliveries.due() == []
    api, row = TokenClient(admin), Delivery.objects.get()
    assert (row.status, row.error) == (Status.GIVEN_UP, "127.0.0.1 answered 500.")
    assert api.post(f"/api/v1/notice-deliveries/{row.pk}/actions/retry").status_code == 202
    assert deliveries.deliver(channel.pk) == 1
    assert api.post(f"/api/v1/notice-deliveries/{row.pk}/actions/retry").status_code == 409
    clock.forward(days=15)
    assert deliveries.forget() == 1


@pytest.mark.parametrize("tries", [1, 2, 9, 60, 1000])
def test_the_wait_grows_to_an_hour_and_no_more(tries):
    assert timedelta(seconds=10) <= deliveries.backoff(tries) <= timedelta(hours=1)


def test_loopback_is_refused_where_it_is_not_allowed(receiver, admin, settings):
    settings.SETPOINT_ALLOW_NETWORKS = []
    channel = hook(admin, receiver.url)
    assert "SETPOINT_ALLOW_NETWORKS" in services.probe(channel, by=admin)
    assert receiver.got == []


# ── Which channel hears of what ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("wish", "hears"),
    [
        ({}, ["bad", "n1", "pod"]),
        ({"least_severity": "critical"}, ["bad"]),
        ({"environment": "production"}, ["bad", "n1", "pod"]),
        ({"environment": "staging"}, []),
        ({"namespaces": ["team"]}, ["pod"]),
        ({"what": ["digest"]}, []),
        ({"is_enabled": False}, []),
    ],
)
def test_a_channel_hears_of_what_it_asked_for(admin, cluster, wish, hears):
    hook(admin, **wish)
    rows = [alert(cluster), alert(cluster, "bad", severity="critical"), alert(cluster, "pod", namespace="team")]
    quiet = alert(cluster, "quiet", silenced_until=now() + timedelta(hours=1))
    routing.tell_alerts(cluster.pk, [*rows, quiet], [])
    found = [one["subject"]["name"] for row in Delivery.objects.all() for one in row.body["opened"]]
    assert sorted(found) == hears


def test_a_channel_of_one_cluster_hears_of_no_other(admin, cluster):
    hook(admin, cluster=ClusterFactory(name="other"))
    hook(admin, cluster=cluster, name="mine")
    routing.tell_alerts(cluster.pk, [alert(cluster)], [])
    assert [row.channel.name for row in Delivery.objects.all()] == ["mine"]


def test_a_rack_that_fails_is_one_notice(admin, cluster):
    hook(admin)
    routing.tell_alerts(cluster.pk, [alert(cluster, f"n{n}") for n in range(150)], [])
    row = Delivery.objects.get()
    assert (row.title, len(row.body["opened"]), row.body["counts"]["opened"]) == ("atlas: alerts 150 opened", 100, 150)


# ── Events of the audit record ────────────────────────────────────────────────────────────────────────────────────────
def test_what_was_recorded_is_told_once_and_nothing_of_before(admin, cluster):
    hook(admin, what=["approvals", "rollouts"])
    record = {"by": "ann@example.com", "cluster_id": cluster.pk}
    audit.record(action="rollout.failed", target="rollout:1", target_name="R-1", **record)
    sealing.seal_waiting()
    assert events.read() == 0  # the first time of all
    audit.record(action="plan.request", target="plan:1", target_name="P-7", message="please", **record)
    audit.record(action="rollout.succeeded", target="rollout:2", target_name="R-2", **record)
    audit.record(action="rollout.pause", target="rollout:3", target_name="R-3", **record)
    assert events.read() == 0  # not sealed yet, so not in their order yet
    sealing.seal_waiting()
    events.read()
    assert events.read() == 0
    rows = Delivery.objects.order_by("title")
    assert [row.title for row in rows] == ["P-7 waits for approval in atlas", "R-3 was paused in atlas"]
    assert rows[0].body["link"].endswith("/plans/P-7/")
    assert rows[0].body["message"] == "please"


def test_two_readers_of_the_record_tell_once(admin, cluster, monkeypatch):
    hook(admin, what=["rollouts"])
    events.read()
    audit.record(by=None, action="rollout.failed", target="rollout:1", target_name="R-1", cluster_id=cluster.pk)
    sealing.seal_waiting()
    real = events._tell

    def meanwhile(records):
        monkeypatch.setattr(events, "_tell", real)
        assert events.read() == 0
        real(records)

    monkeypatch.setattr(events, "_tell", meanwhile)
    events.read()
    assert Delivery.objects.count() == 1


# ── Mail, and the digest ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def mailing(settings):
    settings.EMAIL_HOST = "mail.example"


def test_mail_says_what_is_amiss_and_what_to_do(mailing, admin, cluster):
    channel = hook(admin, kind="mail", addresses=["ops@example.com"], secret=None)
    routing.tell_alerts(cluster.pk, [alert(cluster, mend="Mend it.")], [])
    assert deliveries.deliver(channel.pk) == 1
    (sent,) = mail.outbox
    assert sent.to == ["ops@example.com"]
    assert sent.subject == "[Setpoint] atlas: n1: It is amiss."
    assert "What to do: Mend it." in sent.body
    assert str(Delivery.objects.get().pk) in sent.extra_headers["Message-ID"]


def test_without_a_mail_server_it_waits_and_says_why(admin, cluster):
    channel = hook(admin, kind="mail", addresses=["ops@example.com"], secret=None)
    routing.queue(channel, "alerts", "x", {"opened": [], "closed": [], "counts": {"opened": 0, "closed": 0}})
    assert deliveries.deliver(channel.pk) == 0
    assert "SETPOINT_MAIL_HOST" in Delivery.objects.get().error


def test_the_digest_comes_once_a_day_with_the_hours_of_that_day(mailing, admin, cluster, clock):
    channel = hook(admin, kind="mail", addresses=["ops@example.com"], what=["digest"], digest_hour=12, secret=None)
    at = now()
    idle = {"rule": "held-idle", "figures": {"gpus": 4, "owner": "Job train"}, "namespace": "team"}
    alert(cluster, "team/long", began_at=at - timedelta(days=3), **idle)
    alert(
        cluster, "team/over", status="closed", began_at=at - timedelta(hours=10), well_since=at - timedelta(hours=5),
        closed_at=at - timedelta(hours=4), **idle,
    )  # fmt: skip
    alert(cluster, "lab/short", began_at=at - timedelta(hours=1), **idle | {"namespace": "lab"})
    assert digests.send_due() == 1
    assert digests.send_due() == 0
    body = Delivery.objects.get().body
    assert [(one["namespace"], one["gpus_now"], one["gpu_hours"]) for one in body["namespaces"]] == [
        ("team", 4, 116.0), ("lab", 4, 4.0)
    ]  # fmt: skip
    deliveries.deliver(channel.pk)
    assert "team/long, Job train: 4 GPUs idle since 2026-11-18 12:00 UTC, 96.0 GPU-hours" in mail.outbox[0].body
    clock.forward(hours=13)
    assert digests.send_due() == 0  # a new day, and not the hour yet
    clock.forward(hours=11)
    assert digests.send_due() == 1


# ── Setting channels up ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"url": "ftp://x/y"}, "url"),
        ({"url": "https://ann:pw@chat.example/"}, "url"),
        ({"url": "https://chat.example/#x"}, "url"),
        ({"url": ""}, "url"),
        ({"secret": "short"}, "secret"),
        ({"what": []}, "what"),
        ({"what": ["nope"]}, "what"),
        ({"namespaces": ["Nope!"]}, "namespaces"),
        ({"digest_hour": 24}, "digest_hour"),
        ({"ca": "not PEM"}, "ca"),
        ({"kind": "mail", "addresses": []}, "addresses"),
        ({"kind": "mail", "addresses": ["nope"]}, "addresses"),
    ],
)
def test_a_channel_that_cannot_be_is_refused_and_named(admin, sent, field):
    good = {"name": "x", "kind": "webhook", "url": "https://chat.example/x", "secret": SECRET, "what": ["alerts"]}
    answer = TokenClient(admin).post("/api/v1/notice-channels", good | sent)
    assert answer.status_code in (400, 422)
    assert {one["field"].split("[")[0].split(".")[0] for one in answer.json()["errors"]} == {field}
    assert not Channel.objects.exists()


def test_secrets_are_never_read_back_nor_written_into_the_record(admin):
    api = TokenClient(admin)
    sent = {"name": "x", "kind": "webhook", "url": "https://chat.example/T0/B0/xyzzy", "secret": SECRET}
    made = api.post("/api/v1/notice-channels", sent | {"what": ["alerts"]})
    assert made.status_code == 201
    assert made.json()["has_secret"] is True
    path = made["Location"]
    assert SECRET not in made.content.decode() + api.get(path).content.decode()
    row = Channel.objects.get()
    assert SECRET.encode() not in bytes(row.secret)
    assert row.open_secret() == SECRET
    changed = api.patch(path, {"secret": "another secret, longer"}, HTTP_IF_MATCH='"1"')
    assert changed.status_code == 200
    records = Record.objects.filter(action__startswith="notice-channel.")
    said = " ".join(f"{record.before} {record.after}" for record in records)
    assert len(records) == 2
    assert "xyzzy" not in said
    assert SECRET not in said
    assert "chat.example" in said


def test_the_stored_secret_is_not_sent_to_another_host(admin):
    row = hook(admin)
    api = TokenClient(admin)
    answer = api.patch(f"/api/v1/notice-channels/{row.pk}", {"url": "https://evil.example/"}, HTTP_IF_MATCH='"1"')
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "secret")


def test_a_test_tells_how_it_went_and_stores_nothing(receiver, admin):
    row, api = hook(admin, receiver.url), TokenClient(admin)
    receiver.answers = [200, 404]
    path = f"/api/v1/notice-channels/{row.pk}/actions/test"
    assert api.post(path).json() == {"is_sent": True, "text": ""}
    assert api.post(path).json() == {"is_sent": False, "text": "127.0.0.1 answered 404."}
    assert receiver.bodies[0]["event"] == "test"
    assert not Delivery.objects.exists()


def test_the_pages_of_channels_say_what_works_and_keep_what_was_typed(receiver, admin, client):
    client.force_login(admin)
    assert "No channels" in client.get("/alerts/channels/").content.decode()
    form = {
        "name": "chat", "kind": "webhook", "url": receiver.url, "secret": SECRET, "what": ["alerts", "digest"],
        "least_severity": "warning", "digest_hour": "7", "is_enabled": "on", "namespaces": "", "addresses": "",
    }  # fmt: skip
    wrong = client.post("/alerts/channels/new/", form | {"namespaces": "NOPE"})
    assert wrong.status_code == 422
    assert "&#x27;NOPE&#x27; is not the name of a namespace." in wrong.content.decode()
    assert "Arrived" in client.post("/alerts/channels/new/", form | {"intent": "test"}).content.decode()
    client.post("/alerts/channels/new/", form | {"intent": "save"})
    row = Channel.objects.get()
    page = f"/alerts/channels/{row.pk}/"
    assert SECRET not in client.get(page).content.decode()
    routing.queue(row, "alerts", "A title", {})
    assert client.post(page, form | {"secret": "", "version": "1", "name": "new name"}).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.open_secret(), row.version) == ("new name", SECRET, 2)
    stale = client.post(page, form | {"secret": "", "version": "1"})
    assert stale.status_code == 412
    assert 'name="version" value="2"' in stale.content.decode()
    log = client.get("/alerts/deliveries/?status=waiting")
    assert "A title" in log.content.decode()
    client.post(f"/alerts/channels/{row.pk}/delete/", {"version": "2"})
    assert not Delivery.objects.exists()


def test_the_head_of_the_audit_record_goes_to_its_receiver_once(receiver, settings, monkeypatch, db):
    monkeypatch.setattr(
        audit_heads, "HttpClient", partial(audit_heads.HttpClient, allows_http=True)
    )  # HttpClient's own tests have TLS
    monkeypatch.setattr(audit_heads._Sent, "head", "")
    settings.SETPOINT_AUDIT_HEADS_WEBHOOK = receiver.url
    assert not audit_heads.ship()
    audit.record(by=None, action="a.b", target="t:1")
    sealing.seal_waiting()
    receiver.answers = [500]
    assert [audit_heads.ship() for _ in range(3)] == [False, True, False]
    assert receiver.bodies[-1]["head"] == str(Chain.objects.get())


def test_a_change_that_waits_for_consent_is_told_to_channels(admin, cluster):
    hook(admin, what=["approvals"])
    events.read()
    audit.record(by=admin, action="change.propose", target="user:7", target_name="mallory@example.com", message="x")
    sealing.seal_waiting()
    events.read()
    assert Delivery.objects.get().title == "mallory@example.com waits for a second administrator's consent"
