"""Quiet hours of a channel: when they end, what they hold, and what is left to tell once they are over."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit import sealing
from audit import services as audit
from common.clock import now
from common.errors import Invalid, WrongState
from notices.alerts import digests, events
from notices.channels import deliveries, quiet_hours, routing, services
from notices.models import Alert, Channel, Delivery
from tests.factories import TokenClient
from tests.notices.channels.receiving import SECRET, alert, hook

NIGHTS = {"quiet_days": list(quiet_hours.DAYS), "quiet_from": time(22), "quiet_until": time(7)}
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia")
Status = Delivery.Status


def channel_of(days, begin, until, zone):
    return Channel(quiet_days=list(days), quiet_from=begin, quiet_until=until, quiet_zone=zone)


def is_quiet(days, begin, until, local):
    """Tell by the words of the form whether a clock on the wall that shows `local` is in quiet hours."""
    today, yesterday = (quiet_hours.DAYS[(local.weekday() - back) % 7] for back in (0, 1))
    shown = local.time()
    if until > begin:
        return today in days and begin <= shown < until
    return (today in days and shown >= begin) or (yesterday in days and shown < until)


@given(
    days=st.sets(st.sampled_from(quiet_hours.DAYS)),
    begin=st.times().map(lambda t: t.replace(second=0, microsecond=0)),
    until=st.times().map(lambda t: t.replace(second=0, microsecond=0)),
    zone=st.sampled_from(ZONES),
    # Not by the night in which clocks change: there a time on the wall is twice, or not at all.
    day=st.integers(0, 25),
    minute=st.integers(0, 1439),
)
def test_it_is_quiet_when_the_clock_on_the_wall_says_so(days, begin, until, zone, day, minute):
    if len(days) == 7 and begin == until:
        return
    channel = channel_of(days, begin, until, zone)
    at = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(days=day, minutes=minute)
    end = quiet_hours.ends(channel, at)
    assert (end is not None) == is_quiet(days, begin, until, at.astimezone(ZoneInfo(zone)).replace(tzinfo=None))
    if end is not None:
        assert at < end
        assert quiet_hours.ends(channel, end) is None
        assert all(quiet_hours.ends(channel, at + (end - at) * part / 7) == end for part in range(7))


@pytest.mark.parametrize(("night", "hours"), [("2026-03-28", 8), ("2026-10-24", 10), ("2026-06-10", 9)])
def test_a_night_in_which_clocks_change_ends_at_the_same_time_on_the_wall(night, hours):
    zone = ZoneInfo("Europe/Berlin")
    begin = datetime.fromisoformat(f"{night}T22:00").replace(tzinfo=zone)
    end = quiet_hours.ends(channel_of(quiet_hours.DAYS, time(22), time(7), "Europe/Berlin"), begin.astimezone(UTC))
    assert end is not None
    assert end.astimezone(zone).time() == time(7)
    assert end - begin.astimezone(UTC) == timedelta(hours=hours)


def test_a_weekend_is_one_stretch():
    channel = channel_of(["sat", "sun"], time(0), time(0), "UTC")
    assert quiet_hours.ends(channel, datetime(2026, 11, 28, 9, tzinfo=UTC)) == datetime(2026, 11, 30, tzinfo=UTC)
    assert quiet_hours.ends(channel, datetime(2026, 11, 30, tzinfo=UTC)) is None


# ── Held and released ─────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def night(clock):
    """A moment in the night: 23:00 UTC."""
    clock.at = clock.at.replace(hour=23, minute=0, second=0, microsecond=0)
    return clock


def morning(clock):
    clock.forward(8 * 3600 + 1)


@pytest.fixture
def channel(admin, receiver, night):
    return hook(admin, receiver.url, **NIGHTS)


pytestmark = pytest.mark.django_db


def close(row):
    row.status, row.closed_at = Alert.Status.CLOSED, now()
    row.save()


def test_a_warning_waits_for_the_morning_and_a_critical_alert_does_not(channel, cluster, receiver, night):
    routing.tell_alerts(cluster.pk, [alert(cluster), alert(cluster, "bad", severity="critical")], [])
    deliveries.deliver(channel.pk)
    assert [[row["subject"]["name"] for row in body["opened"]] for body in receiver.bodies] == [["bad"]]
    night.forward(3600)
    assert deliveries.due() == []

    night.forward(7 * 3600 + 1)
    assert deliveries.due() == [channel.pk]
    deliveries.deliver(channel.pk)
    assert [row["subject"]["name"] for row in receiver.bodies[1]["opened"]] == ["n1"]
    deliveries.deliver(channel.pk)
    assert len(receiver.bodies) == 2


def test_the_morning_has_one_notice_a_cluster_of_what_is_still_so(channel, cluster, receiver, night):
    before = alert(cluster, "before")
    rows = [alert(cluster, f"n{number}") for number in range(6)]
    for row in rows:
        routing.tell_alerts(cluster.pk, [row], [])
        night.forward(60)
    for row in (rows[0], rows[1], before):
        close(row)
        routing.tell_alerts(cluster.pk, [], [row])
    Alert.objects.filter(pk=rows[2].pk).update(silenced_until=now() + timedelta(days=2))
    rows[3].delete()
    morning(night)
    deliveries.deliver(channel.pk)

    (body,) = receiver.bodies
    assert sorted(row["subject"]["name"] for row in body["opened"]) == ["n4", "n5"]
    assert [row["subject"]["name"] for row in body["closed"]] == ["before"]
    assert body["counts"] == {"opened": 2, "closed": 1}
    assert body["cluster"]["name"] == "atlas"


def test_what_came_and_went_in_the_night_is_not_told(channel, cluster, receiver, night):
    row = alert(cluster)
    routing.tell_alerts(cluster.pk, [row], [])
    close(row)
    routing.tell_alerts(cluster.pk, [], [row])
    morning(night)
    deliveries.deliver(channel.pk)
    assert receiver.bodies == []
    assert Delivery.objects.get().status == Status.OVER
    assert deliveries.due() == []


def test_a_cluster_that_is_gone_by_the_morning_stops_no_other_notice(channel, cluster, receiver, night, admin):
    routing.tell_alerts(cluster.pk, [alert(cluster)], [])
    routing.queue(channel, "approvals", "A plan waits", {})
    Alert.objects.all().delete()
    cluster.delete()
    morning(night)
    deliveries.deliver(channel.pk)
    assert [body["title"] for body in receiver.bodies] == ["A plan waits"]


def test_break_glass_is_sent_at_once_and_a_plan_to_approve_is_not(channel, cluster, receiver, night, admin):
    Channel.objects.update(what=["alerts", "approvals"])
    sealing.seal_waiting()
    events.read()
    for action in ("plan.request", "rollout.break-glass"):
        audit.record(by=admin, action=action, target="plan:1", target_name="P-1", cluster_id=cluster.pk)
    sealing.seal_waiting()
    events.read()
    deliveries.deliver(channel.pk)
    assert [body["event"] for body in receiver.bodies] == ["break-glass"]
    morning(night)
    deliveries.deliver(channel.pk)
    assert [body["event"] for body in receiver.bodies] == ["break-glass", "approvals"]


def test_a_weekend_of_held_notices_is_not_given_up(channel, cluster, receiver, night):
    Channel.objects.update(quiet_days=["sat", "sun"], quiet_from=time(0), quiet_until=time(0))
    channel.refresh_from_db()
    while quiet_hours.ends(channel, now()) is None or quiet_hours.ends(channel, now() - timedelta(minutes=1)):
        night.forward(3600)
    routing.tell_alerts(cluster.pk, [alert(cluster)], [])
    routing.queue(channel, "approvals", "A plan waits", {})
    night.forward(47 * 3600)
    assert deliveries.give_up() == 0
    night.forward(3600)
    receiver.answers = [503]
    deliveries.deliver(channel.pk)
    assert deliveries.give_up() == 0
    night.forward(400)
    deliveries.deliver(channel.pk)
    assert len(receiver.bodies) == 3
    assert set(Delivery.objects.values_list("status", flat=True)) == {Status.SENT}


def test_quiet_hours_that_are_taken_away_let_go_of_what_they_held(channel, cluster, receiver, night, admin):
    routing.tell_alerts(cluster.pk, [alert(cluster)], [])
    services.update(channel, by=admin, version=channel.version, quiet_until=time(6))
    assert Delivery.objects.get().due_at.hour == 6
    services.update(channel, by=admin, version=channel.version, quiet_days=[], quiet_from=None, quiet_until=None)
    deliveries.deliver(channel.pk)
    assert len(receiver.bodies) == 1


def test_a_held_notice_is_sent_when_a_person_says_so(channel, cluster, receiver, night, admin):
    row = alert(cluster)
    routing.tell_alerts(cluster.pk, [row], [])
    services.retry(Delivery.objects.get(), by=admin)
    deliveries.deliver(channel.pk)
    assert [opened["subject"]["name"] for opened in receiver.bodies[0]["opened"]] == ["n1"]

    other = alert(cluster, "n2")
    routing.tell_alerts(cluster.pk, [other], [])
    close(other)
    routing.tell_alerts(cluster.pk, [], [other])
    with pytest.raises(WrongState):
        services.retry(Delivery.objects.get(is_held=True), by=admin)
    morning(night)
    deliveries.deliver(channel.pk)
    assert len(receiver.bodies) == 1


def test_a_digest_of_an_hour_in_the_night_comes_in_the_morning(channel, cluster, receiver, night):
    Channel.objects.update(what=["digest"], digest_hour=23)
    row = alert(cluster, "team/pod", rule=digests.RULE, namespace="team", figures={"gpus": 8})
    Alert.objects.filter(pk=row.pk).update(subject_kind="pod", began_at=now() - timedelta(hours=2))
    assert digests.send_due() == 1
    assert deliveries.due() == []
    morning(night)
    deliveries.deliver(channel.pk)
    assert [(body["event"], body["gpu_hours"]) for body in receiver.bodies] == [("digest", 16.0)]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"quiet_days": ["monday"]}, {"quiet_days"}),
        ({"quiet_days": []}, {"quiet_days"}),
        ({"quiet_from": None}, {"quiet_days"}),
        ({"quiet_until": None}, {"quiet_days"}),
        ({"quiet_zone": "Mars/Olympus"}, {"quiet_zone"}),
        ({"quiet_zone": "../../etc/passwd"}, {"quiet_zone"}),
        ({"quiet_from": time(7)}, {"quiet_until"}),
    ],
)
def test_quiet_hours_that_cannot_be_are_refused_by_field(admin, fields, wrong):
    with pytest.raises(Invalid) as refusal:
        hook(admin, **(NIGHTS | fields))
    assert set(refusal.value.fields) == wrong


def test_quiet_hours_go_in_and_out_over_rest(admin):
    client = TokenClient(admin, scopes=["admin"])
    body = {"name": "chat", "kind": "webhook", "url": "https://chat.example/hook", "secret": SECRET, "what": ["alerts"]}
    times = {"quiet_from": "22:00", "quiet_until": "07:00", "quiet_zone": "Europe/Berlin"}
    made = client.post("/api/v1/notice-channels", body | times | {"quiet_days": ["sun", "mon"]})
    assert made.status_code == 201, made.json()
    shown = {name: made.json()[name] for name in (*times, "quiet_days")}
    assert shown == times | {"quiet_days": ["mon", "sun"]}
    wrong = client.post("/api/v1/notice-channels", body | {"name": "other", "quiet_days": ["someday"]})
    assert wrong.status_code == 422
    assert "quiet_days" in str(wrong.json())


def test_pagerduty_takes_none(admin):
    with pytest.raises(Invalid) as refusal:
        hook(admin, "", kind="pagerduty", secret="a" * 32, **NIGHTS)
    assert "support hours" in str(refusal.value.fields["quiet_days"])
