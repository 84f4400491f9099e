"""Pages and REST of alerts and their rules: visibility, permissions, and the audit record."""

from __future__ import annotations

import re
from collections import Counter
from datetime import time, timedelta

import pytest
from django.test import Client

from audit.models import Record
from clusters.models import Node
from common.clock import now
from config.context import count
from notices.channels.quiet_hours import DAYS
from notices.models import Alert, Channel, Delivery, Evaluation, RuleSetting
from notices.reports import wording
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db


def alert(cluster, subject="n1", **fields):
    fields = {"rule": "drift", "severity": "warning", "status": "open", "sentence": f"{subject} is amiss."} | fields
    return Alert.objects.create(
        cluster=cluster, subject_kind="node", subject=subject, subject_name=subject, mend="Mend it.", **fields
    )


@pytest.fixture
def cluster(clock):
    return ClusterFactory(name="atlas", environment="staging")


@pytest.fixture
def operator(db):
    return UserFactory(roles=["operator@env:staging"])


def browser(user):
    client = Client()
    client.force_login(user)
    return client


def text(answer):
    assert answer.status_code == 200, answer.content[:300]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_the_list_puts_open_then_critical_then_new_first_and_narrows(cluster, operator, clock):
    alert(cluster, "closed", status="closed", closed_at=now(), severity="critical")
    alert(cluster, "old")
    clock.forward(minutes=5)
    alert(cluster, "new")
    alert(cluster, "bad", severity="critical", opened_at=now() - timedelta(hours=1))
    alert(cluster, "pending", status="pending")
    api = TokenClient(operator)
    names = [row["subject"]["name"] for row in api.get("/api/v1/alerts").json()["results"]]
    assert names == ["bad", "new", "old", "closed"]
    page = browser(operator).get("/alerts/")
    assert "3 open, 1 of them critical" in text(page)
    assert [row.subject_name for row in page.context["listing"].page.rows] == names
    narrowed = browser(operator).get("/alerts/?severity=critical&status=open")
    assert [row.subject_name for row in narrowed.context["listing"].page.rows] == ["bad"]
    assert "No alert matches" in text(browser(operator).get("/alerts/?q=nothing"))


def test_an_empty_list_says_that_nothing_was_amiss(operator):
    assert "No alerts" in text(browser(operator).get("/alerts/"))


def test_a_page_costs_the_same_at_any_number_of_alerts(cluster, operator, django_assert_max_num_queries):
    client = browser(operator)
    Alert.objects.bulk_create(
        Alert(cluster=cluster, rule="drift", subject_kind="node", subject=f"n{n}", subject_name=f"n{n}", status="open",
              severity="warning", sentence="x")
        for n in range(200)
    )  # fmt: skip
    with django_assert_max_num_queries(12):
        client.get("/alerts/")


def test_nobody_sees_alerts_of_clusters_that_are_not_theirs(cluster, clock):
    row = alert(cluster)
    outside = UserFactory(roles=["operator@env:production"])
    client = browser(outside)
    assert TokenClient(outside).get("/api/v1/alerts").json()["results"] == []
    assert client.get(f"/alerts/{row.pk}/").status_code == 404
    assert client.post(f"/alerts/{row.pk}/acknowledge/").status_code == 404
    assert count(outside).alerts == 0


def test_what_cannot_be_seen_now_is_said(cluster, operator):
    Evaluation.objects.create(cluster=cluster, blind={"drift": "Nothing was heard."})
    alert(cluster, is_unknown=True)
    shown = text(browser(operator).get("/alerts/"))
    assert "atlas Drift: Nothing was heard." in shown
    assert "unknown now" in shown


def test_acknowledging_is_recorded_and_takes_it_from_what_waits(cluster, operator):
    row = alert(cluster)
    assert count(operator).alerts == 1
    client = browser(operator)
    client.post(f"/alerts/{row.pk}/acknowledge/", {"note": "on it", "version": 1})
    row.refresh_from_db()
    assert (row.acknowledged_by, row.note, row.version) == (str(operator), "on it", 2)
    assert count(operator).alerts == 0
    record = Record.objects.get(action="alert.acknowledge")
    assert (record.actor, record.message, record.cluster_id) == (str(operator), "on it", cluster.pk)
    again = client.post(f"/alerts/{row.pk}/acknowledge/", {"version": 2})
    assert again.status_code == 409
    assert "has acknowledged it already" in again.content.decode()


def test_silencing_needs_a_time_ahead_and_can_be_ended(cluster, operator):
    row, api = alert(cluster), TokenClient(operator)
    path = f"/api/v1/alerts/{row.pk}/actions/"
    for wrong in (now(), now() + timedelta(days=31)):
        answer = api.post(f"{path}silence", {"until": wrong.isoformat()})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "until")
    answer = api.post(f"{path}silence", {"until": (now() + timedelta(hours=8)).isoformat()}, HTTP_IF_MATCH='"1"')
    assert (answer.status_code, answer["ETag"], answer.json()["is_silenced"]) == (200, '"2"', True)
    assert count(operator).alerts == 0
    assert api.post(f"{path}silence", {"until": now().isoformat()}, HTTP_IF_MATCH='"1"').status_code == 412
    assert api.post(f"{path}unsilence").json()["is_silenced"] is False
    assert api.post(f"{path}unsilence").status_code == 409
    assert count(operator).alerts == 1


def test_a_viewer_reads_and_is_told_why_they_cannot_act(cluster):
    row, viewer = alert(cluster), UserFactory(roles=["viewer@env:staging"])
    shown = text(browser(viewer).get(f"/alerts/{row.pk}/"))
    assert "n1 is amiss." in shown
    assert "you need the role operator here" in shown
    assert browser(viewer).post(f"/alerts/{row.pk}/acknowledge/").status_code == 403


def test_a_closed_alert_offers_nothing(cluster, operator):
    row = alert(cluster, status="closed", closed_at=now(), ending="well")
    assert 'aria-describedby="ack-why"' not in browser(operator).get(f"/alerts/{row.pk}/").content.decode()
    assert browser(operator).post(f"/alerts/{row.pk}/acknowledge/").status_code == 409


def test_overview_cluster_and_node_show_what_is_open(cluster, operator):
    node = Node.objects.create(cluster=cluster, uid="u1", name="n1")
    row = alert(cluster, node=node, rule="fatal-xid")
    client = browser(operator)
    for path in ("/", f"/nodes/{node.pk}/"):
        assert f"/alerts/{row.pk}/" in client.get(path).content.decode(), path
    assert "1 open alert." in text(client.get(f"/clusters/{cluster.pk}/"))
    Alert.objects.update(status="closed", closed_at=now())
    for path in ("/", f"/clusters/{cluster.pk}/", f"/nodes/{node.pk}/"):
        assert "pen alert" not in client.get(path).content.decode(), path


def test_the_overview_tells_nothing_twice(cluster, operator):
    fatal, twice = alert(cluster, rule="fatal-xid"), alert(cluster, rule="drift", subject="u2")
    page = browser(operator).get("/").content.decode()
    assert f"/alerts/{fatal.pk}/" in page
    assert f"/alerts/{twice.pk}/" not in page


# ── Rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_rule_is_set_everywhere_and_for_one_cluster_and_put_back(cluster):
    admin, here = UserFactory(roles=["admin"]), UserFactory(roles=["admin@env:staging"])
    api, local = TokenClient(admin), TokenClient(here)
    everywhere, there = "/api/v1/alert-rules/thermal", f"/api/v1/clusters/{cluster.pk}/alert-rules/thermal"
    assert api.patch(everywhere, {"threshold": 90}).status_code == 428
    done = api.patch(everywhere, {"threshold": 90}, HTTP_IF_MATCH='"0"')
    assert (done.status_code, done["ETag"], done.json()["threshold"]) == (200, '"1"', 90)
    assert api.patch(everywhere, {"threshold": 91}, HTTP_IF_MATCH='"0"').status_code == 412
    assert local.patch(everywhere, {"threshold": 80}, HTTP_IF_MATCH='"1"').status_code == 403
    seen = local.get(there)
    assert (seen["ETag"], seen.json()["threshold"], seen.json()["set_for"]) == ('"0"', 90, "everywhere")
    done = local.patch(there, {"is_enabled": False}, HTTP_IF_MATCH='"0"').json()
    assert (done["threshold"], done["is_enabled"], done["set_for"], done["version"]) == (90, False, "cluster", 1)
    rows = local.get(f"/api/v1/clusters/{cluster.pk}/alert-rules").json()["results"]
    assert {row["name"]: row["set_for"] for row in rows}["thermal"] == "cluster"
    assert local.delete(there, HTTP_IF_MATCH='"1"').status_code == 204
    assert local.get(there).json()["set_for"] == "everywhere"
    assert local.delete(there, HTTP_IF_MATCH="*").status_code == 404
    records = Record.objects.filter(target="alert-rule:thermal")  # of one moment: they have no order
    assert Counter(records.values_list("action", flat=True)) == {"alert-rule.change": 2, "alert-rule.reset": 1}


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"threshold": 20}, "threshold"),
        ({"threshold": 1000}, "threshold"),
        ({"severity": "nope"}, "severity"),
        ({"opens_after": -1}, "opens_after"),
        ({"closes_after": 10**9}, "closes_after"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_named(sent, field, db):
    api = TokenClient(UserFactory(roles=["admin"]))
    answer = api.patch("/api/v1/alert-rules/thermal", sent, HTTP_IF_MATCH='"0"')
    assert answer.status_code in (400, 422)
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert not RuleSetting.objects.exists()


def test_a_rule_without_a_threshold_takes_none_and_an_unknown_rule_is_missing(db):
    api = TokenClient(UserFactory(roles=["admin"]))
    assert api.patch("/api/v1/alert-rules/drift", {"threshold": 3}, HTTP_IF_MATCH='"0"').status_code == 422
    assert api.get("/api/v1/alert-rules/nope").status_code == 404


def test_the_form_of_a_rule_says_what_holds_and_keeps_what_was_typed(cluster):
    client = browser(UserFactory(roles=["admin"]))
    assert "at 85 °C or hotter for 5 minutes" in text(client.get("/alerts/rules/"))
    form = {"is_enabled": "on", "severity": "critical", "threshold": "88", "opens_after": "60", "closes_after": "60"}
    wrong = client.post("/alerts/rules/thermal/?cluster=atlas", form | {"threshold": "7", "version": "0"})
    assert wrong.status_code == 422
    assert 'value="7"' in wrong.content.decode()
    done = client.post("/alerts/rules/thermal/?cluster=atlas", form | {"version": "0"}, follow=True)
    assert "at 88 °C or hotter for 1 minute" in text(done)
    stale = client.post("/alerts/rules/thermal/?cluster=atlas", form | {"version": "0"})
    assert stale.status_code == 412
    assert 'name="version" value="1"' in stale.content.decode()
    assert "at 85 °C" in text(client.get("/alerts/rules/"))
    client.post("/alerts/rules/thermal/reset/?cluster=atlas", {"version": "1"})
    assert not RuleSetting.objects.exists()


def test_a_viewer_sees_rules_and_why_they_cannot_change_them(cluster):
    client = browser(UserFactory(roles=["viewer"]))
    assert "you need the role admin" in text(client.get("/alerts/rules/drift/"))
    form = {"severity": "warning", "opens_after": "60", "closes_after": "60", "version": "0"}
    assert client.post("/alerts/rules/drift/", form).status_code == 403


def test_metrics_tell_of_alerts_and_of_what_waits_to_be_sent(cluster, client):
    alert(cluster)
    Evaluation.objects.create(cluster=cluster, looked_at=now() - timedelta(seconds=40), looks=7)
    channel = Channel.objects.create(name="chat", what=["alerts"], failing_since=now() - timedelta(seconds=90))
    Delivery.objects.create(channel=channel, event="alerts", title="x", body={})
    metrics = client.get("/metrics").content.decode()
    assert 'setpoint_alerts{cluster="atlas",rule="drift",severity="warning",status="open"} 1.0' in metrics
    assert 'setpoint_alerts_age_seconds{cluster="atlas"} 40.0' in metrics
    assert 'setpoint_alerts_looks_total{cluster="atlas"} 7.0' in metrics
    assert 'setpoint_deliveries{channel="chat",status="waiting"} 1.0' in metrics
    assert 'setpoint_channel_failing_seconds{channel="chat"} 90.0' in metrics


def test_an_alert_says_what_follows_when_it_is_acknowledged_or_why_it_cannot_be():
    fresh = Alert()
    assert wording.acknowledging(fresh, may_act=True).startswith("Marks it as being handled")
    assert wording.acknowledging(fresh, may_act=False) == "Not possible: you need the role operator here."
    done = Alert(acknowledged_at=now(), acknowledged_by="ada@example.com")
    assert wording.acknowledging(done, may_act=True) == "Not possible: ada@example.com has acknowledged it."


def test_quiet_hours_are_set_on_the_page_and_shown_while_they_last(clock):
    clock.at = clock.at.replace(hour=23, minute=0)
    client = browser(UserFactory(roles=["admin"]))
    fields = {"name": "chat", "kind": "slack", "url": "https://hooks.example/x", "what": "alerts", "is_enabled": "on"}
    fields |= {"least_severity": "warning", "digest_hour": "7", "intent": "save", "quiet_days": list(DAYS)}
    wrong = client.post("/alerts/channels/new/", fields | {"quiet_from": "22:00", "quiet_zone": "Mars/Olympus"})
    assert (wrong.status_code, Channel.objects.count()) == (422, 0)
    assert 'value="Mars/Olympus"' in wrong.content.decode()

    times = {"quiet_from": "22:00", "quiet_until": "07:00", "quiet_zone": "UTC"}
    assert client.post("/alerts/channels/new/", fields | times).status_code == 302
    row = Channel.objects.get()
    assert (row.quiet_days, row.quiet_from, row.quiet_until) == (list(DAYS), time(22), time(7))
    assert "Quiet" in client.get("/alerts/channels/").content.decode()
    again = client.get(f"/alerts/channels/{row.pk}/").content.decode()
    assert again.count("checked") >= 7
    assert 'value="22:00"' in again
    clock.forward(9 * 3600)
    assert "Quiet" not in client.get("/alerts/channels/").content.decode()
