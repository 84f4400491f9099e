"""Deliveries: their content, their signature, and the cost of a dead receiver: itself alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from functools import partial

import pytest
from django.core import mail

from audit import sealing
from audit import services as audit
from audit.models import Chain
from common.clock import now
from common.errors import Invalid
from notices.alerts import digests, events
from notices.channels import audit_heads, deliveries, routing, services
from notices.models import Alert, Channel, Delivery
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient
from tests.notices.channels.receiving import SECRET, alert, hook

pytestmark = pytest.mark.django_db
Status = Delivery.Status


def verified(secret, headers, body, at, tolerance=300):
    """Standard Webhooks' verification, by its specification: several signatures, their versions, the time."""
    names = {name.lower(): value for name, value in headers.items()}
    if abs(int(names["webhook-timestamp"]) - at) > tolerance:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join([names["webhook-id"].encode(), names["webhook-timestamp"].encode(), body])
    right = hmac.new(key, signed, "sha256").digest()
    for signature in names["webhook-signature"].split(" "):
        version, _, text = signature.partition(",")
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
    stamp = headers["webhook-timestamp"]
    signed = f"{row.pk}.{stamp}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert (headers["webhook-signature"], headers["Setpoint-Event"]) == (f"v1,{expected}", "alerts")
    assert int(stamp) == int(clock.at.timestamp())
    payload = json.loads(body)
    assert headers["webhook-id"] == payload["id"] == str(row.pk)
    assert [opened["subject"]["name"] for opened in payload["opened"]] == ["n1"]
    assert payload["counts"] == {"opened": 1, "closed": 0}
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
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
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
    subjects = [opened["subject"]["name"] for row in Delivery.objects.all() for opened in row.body["opened"]]
    assert sorted(subjects) == hears


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


def test_a_start_by_break_glass_is_told_to_every_channel_of_the_cluster(admin, cluster):
    hook(admin, name="deaf", what=["digest"])
    hook(admin, name="elsewhere", what=["approvals"], environment="development")
    events.read()
    for action in ("rollout.break-glass", "rollout.break-glass-overdue"):
        record = {"target": "rollout:1", "target_name": "R-1", "message": "why", "cluster_id": cluster.pk}
        audit.record(by=None, action=action, **record)
    sealing.seal_waiting()
    events.read()
    rows = Delivery.objects.select_related("channel")
    assert [(row.channel.name, row.event, row.body["message"]) for row in rows] == [("deaf", "break-glass", "why")] * 2


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
    assert [(entry["namespace"], entry["gpus_now"], entry["gpu_hours"]) for entry in body["namespaces"]] == [
        ("team", 4, 116.0), ("lab", 4, 4.0)
    ]  # fmt: skip
    deliveries.deliver(channel.pk)
    assert "team/long, Job train: 4 GPUs idle since 2026-11-18 12:00 UTC, 96.0 GPU-hours" in mail.outbox[0].body
    clock.forward(hours=13)
    assert digests.send_due() == 0  # a new day, and not the hour yet
    clock.forward(hours=11)
    assert digests.send_due() == 1


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
