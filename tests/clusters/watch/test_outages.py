"""A cluster that does not answer, refuses the credential or answers rubbish."""

from __future__ import annotations

import pytest

from clusters.fleet import Page
from clusters.models import Node
from clusters.reports import alert_rules
from tests.clusters.watch.driven import names


def test_an_outage_turns_the_nodes_unreachable_and_says_since_when_and_why(here, clock):
    here.sim.add_node("n1")
    here.step()
    assert Node.objects.get().health == "healthy"
    seen_true = here.row().observed_at
    began = clock.forward(60)
    here.sim.faults.outage = True

    here.step()
    clock.forward(60)
    here.step(2)

    cluster = here.row()
    assert (cluster.reach, cluster.reach_since) == ("unreachable", began)
    assert "outage" in cluster.reach_reason
    assert cluster.observed_at == seen_true
    assert Node.objects.select_related("cluster").get().health == "unreachable"
    assert "outage" in Node.objects.select_related("cluster").get().health_reason

    here.sim.faults.outage = False
    here.step(2)
    assert (here.row().reach, here.row().reach_reason) == ("reachable", "")
    assert Node.objects.select_related("cluster").get().health == "healthy"


@pytest.mark.parametrize("outcome", ["unauthorized", "impostor"])
def test_a_refused_credential_is_told_from_a_server_that_is_away_and_forgotten_once_it_is_accepted(
    here, clock, outcome
):
    here.sim.add_node("n1")
    here.step()
    began = clock.forward(60)
    here.sim.faults.add(outcome)
    here.step()
    clock.forward(60)
    here.step(2)
    assert (here.row().reach, here.row().refused_since) == ("unreachable", began)
    (alert,) = alert_rules.refused(here.row().pk, 0).conditions
    assert here.row().reach_reason in alert.sentence

    here.sim.faults.clear()
    here.step(2)
    assert (here.row().reach, here.row().refused_since) == ("reachable", None)
    assert not alert_rules.refused(here.row().pk, 0).conditions

    here.sim.faults.outage = True
    here.step(3)
    assert (here.row().reach, here.row().refused_since) == ("unreachable", None)


def test_one_dropped_connection_is_not_an_outage(here):
    here.sim.add_node("n1")
    here.step()
    here.sim.faults.add("timeout", verb="watch", resource="nodes", times=1)

    here.step()
    assert here.row().reach == "reachable"
    here.sim.add_node("n2")
    here.step()

    assert names() == ["n1", "n2"]


def test_being_told_to_slow_down_is_not_an_outage(here):
    here.step()
    here.sim.faults.add("throttle", verb="watch", times=6, retry_after=7)

    waits = [here.streams[0].step() for _ in range(3)]
    here.flush()

    assert min(waits) >= 7
    assert here.row().reach == "reachable"


def test_a_missing_permission_is_named(here):
    here.sim.api.forbidden.add(("list", "pods"))

    here.step()

    assert here.row().reach == "unreachable"
    assert "pods" in here.row().reach_reason


def test_a_program_error_in_a_stream_is_an_outage_not_an_end(here, monkeypatch):
    here.sim.add_node("n1")
    monkeypatch.setattr(here.fleet, "list", lambda *_, **__: 1 / 0)

    here.step()
    assert "ZeroDivisionError" in here.row().reach_reason
    monkeypatch.undo()
    here.step()

    assert names() == ["n1"]


def test_rubbish_from_a_server_is_survived(here, monkeypatch):
    rubbish = [None, 7, [], {"metadata": []}, {"metadata": {"uid": "u", "name": "n", "labels": 3}, "status": "fine"}]
    monkeypatch.setattr(here.fleet, "list", lambda *_, **__: Page(rubbish, "5"))

    here.step()

    assert here.row().reach == "reachable"
    assert names() == ["n"]
