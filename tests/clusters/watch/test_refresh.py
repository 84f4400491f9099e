"""Enrolment of nodes, and a refresh on request."""

from __future__ import annotations

import pytest

from clusters.fleet import FleetUnavailable, Untrusted
from clusters.inventory import enrolment, inspection
from clusters.models import NodeTuning
from clusters.watch import supervisor
from common import hooks
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.watch.driven import names


# ── enrolment ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_every_node_gets_a_tuning_in_mode_observe_with_the_catalogs_keys(here):
    hooks.observed_keys.subscribe(lambda: ["vm.swappiness", "net.core.somaxconn"])
    for number in range(5):
        here.sim.add_node(f"n{number}")
    here.step()

    assert enrolment.enrol(here.watched.cluster, here.fleet) == 5
    assert enrolment.enrol(here.watched.cluster, here.fleet) == 0

    spec = here.sim.tuning("n3")["spec"]
    assert spec["nodeUID"] == here.sim.node("n3")["metadata"]["uid"]
    assert (spec["mode"], spec["observe"]) == ("observe", "net.core.somaxconn\nvm.swappiness")
    assert NodeTuning.objects.count() == 5


@pytest.mark.parametrize("ownership", ["foreign", "unclaimed"])
def test_nothing_is_written_to_a_cluster_that_is_not_ours(here, ownership):
    here.sim.add_node("n1")
    here.step()
    here.watched.cluster.ownership = ownership

    assert enrolment.enrol(here.watched.cluster, here.fleet) == 0
    assert here.sim.objects("nodetunings") == []


def test_a_node_that_cannot_be_enrolled_holds_up_no_other_and_is_tried_again(here):
    for number in range(4):
        here.sim.add_node(f"n{number}")
    here.step()
    here.sim.faults.add("error", verb="create", resource="nodetunings", name="n2", times=1)

    assert enrolment.enrol(here.watched.cluster, here.fleet) == 3
    assert enrolment.enrol(here.watched.cluster, here.fleet) == 1


def test_why_nothing_can_be_enrolled_is_on_the_row_until_it_can(here):
    here.sim.add_node("n1")
    here.step()
    here.sim.faults.add("refuse", verb="create", resource="nodetunings", times=1)

    enrolment.enrol(here.watched.cluster, here.fleet)
    assert "policy" in here.row().enrolment_error
    enrolment.enrol(here.watched.cluster, here.fleet)

    assert here.row().enrolment_error == ""


# ── refresh on request ────────────────────────────────────────────────────────────────────────────────────────────────
def test_refresh_reads_everything_now(here):
    here.sim.add_node("n1", gpus=8)
    here.fleet.observe("n1", here.sim.node("n1")["metadata"]["uid"], _observe(here, "n1"))
    here.sim.add_pod("train", node="n1", gpus=4)
    here.sim.tick(120)

    supervisor.refresh(here.cluster, here.fleet)

    cluster = here.row()
    assert (cluster.reach, names()) == ("reachable", ["n1"])
    assert cluster.observed_at is not None
    assert NodeTuning.objects.get().protocol == 1


def test_refresh_of_another_cluster_is_refused(here):
    with pytest.raises(Untrusted, match="Another cluster"):
        supervisor.refresh(here.cluster, SimFleet(SimCluster(seed=9, name="other")))

    assert here.row().observed_at is None


def test_refresh_says_that_a_cluster_does_not_answer(here):
    here.sim.faults.outage = True

    with pytest.raises(FleetUnavailable):
        supervisor.refresh(here.cluster, here.fleet)


@pytest.mark.parametrize("look", [inspection.inspect, supervisor._leases], ids=["inspection", "leases, every minute"])
def test_a_mark_that_changed_hands_is_noticed(here, settings, look):
    here.fleet.claim(settings.SETPOINT_INSTALLATION)
    inspection.inspect(here.cluster, here.fleet)
    assert here.row().ownership == "ours"

    here.fleet.claim("somebody-else", take_over=True)
    look(here.cluster, here.fleet)

    assert (here.row().ownership, here.row().ownership_mark) == ("foreign", "somebody-else")


def _observe(here, name):
    from contract.nodetuning import Spec

    return Spec(node_uid=here.sim.node(name)["metadata"]["uid"])
