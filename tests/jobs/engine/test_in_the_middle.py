"""Changes around a rollout while it runs: clocks, budgets, profiles, roles, nodes, an API server that fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from clusters.models import Cluster
from common.clock import now
from jobs.models import Slot, Step
from jobs.rollouts import rollout_actions
from tests.jobs.conftest import World

REBOOT = {"cmdline.iommu": "pt"}


def jump(world: World, seconds: float) -> None:
    """The control plane's clock alone: nodes and API server keep theirs."""
    world.clock.forward(seconds)
    world.sim.clock.behind += timedelta(seconds=seconds)
    world.look()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_jumps_neither_breaks_the_budget_nor_restarts_a_node_twice(make_world: Any, hours: int) -> None:
    """A step may end over it, and says so; its node keeps cordon and place until it is given back by the rules.

    To a clock that is behind, agents renew in the future: they are not believed, so no node is begun until it is right.
    """
    world = make_world(nodes=2)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    world.until(rollout, "restarting")
    boots = {name: world.node(name).boot_id for name in ("n1", "n2")}
    jump(world, hours * 3600)
    seen = {name: {boot} for name, boot in boots.items()}
    for turn in range(400):
        world.slice(rollout)
        if rollout.status in ("succeeded", "stopped"):
            break
        if hours < 0 and turn == 100:
            jump(world, -hours * 3600)
        for name, boot in seen.items():
            boot.add(world.node(name).boot_id)
        for step in rollout.steps.filter(is_live=True, status__in=Step.ACTIVE):
            assert step.waiting_for, "it waits in silence"
        world.tick(30)
    assert rollout.status in ("succeeded", "stopped"), rollout.waiting_for
    assert world.sim.nodes.peak_unavailable() == 1
    assert all(len(boot) <= 2 for boot in seen.values())
    for step in rollout.steps.filter(status="failed"):
        assert world.node(step.node_name).is_cordoned == Slot.objects.filter(step=step).exists()


def test_a_budget_lowered_in_the_middle_gives_no_new_place_and_takes_none_back(make_world: Any) -> None:
    world = make_world(nodes=6)
    Cluster.objects.update(budget=3)
    world.cluster.refresh_from_db()
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="6"))
    world.until(rollout, "restarting")
    held = set(Slot.objects.values_list("step_id", flat=True))
    assert len(held) == 3
    Cluster.objects.update(budget=1)
    while rollout.is_live:
        world.slice(rollout)
        present = set(Slot.objects.values_list("step_id", flat=True))
        assert present <= held or len(present) <= 1
        busy = rollout.steps.filter(pk__in=held, status__in=Step.ACTIVE).values_list("pk", flat=True)
        assert set(busy) <= present, "a place was taken back"
        held &= present
        world.tick(5)
    assert rollout.status == "succeeded"


def test_a_profile_revised_in_the_middle_changes_nothing_of_what_was_approved(world: World) -> None:
    rollout = world.started(world.plan(canary=1, order="name"))
    world.until(rollout, "verifying")
    world.revision({"vm.swappiness": "55"})
    assert world.run(rollout).status == "succeeded"
    assert {world.value(name) for name in ("n1", "n2", "n3")} == {"10"}


def test_an_approvers_role_lost_in_the_middle_stops_nothing_that_runs(world: World) -> None:
    rollout = world.started(world.plan(canary=1, order="name"))
    world.until(rollout, "verifying")
    world.approver.bindings.all().delete()
    assert world.run(rollout).status == "succeeded"


def test_an_approvers_role_lost_before_its_time_keeps_a_rollout_from_beginning(world: World) -> None:
    rollout = rollout_actions.start(world.approved(), by=world.operator, at=now() + timedelta(minutes=10))
    world.approver.bindings.all().delete()
    world.run(rollout, seconds=1800, step=60)
    assert rollout.status == "queued"
    assert "approved" in rollout.waiting_for
    assert {world.value(name) for name in ("n1", "n2", "n3")} == {"60"}


def test_a_node_that_is_and_stays_not_ready_holds_its_place_and_is_named(make_world: Any) -> None:
    world = make_world(nodes=3)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    world.until(rollout, "restarting")
    world.sim.nodes.set_ready("n1", is_ready=False, agent=False)
    world.run(rollout, seconds=6 * 3600, step=60)
    step = rollout.steps.get(node_name="n1")
    assert (rollout.status, step.status) == ("stopped", "failed")
    assert "n1 is not Ready" in step.error
    assert Slot.objects.filter(step=step).exists()
    assert world.sim.nodes.peak_unavailable() == 1


@pytest.mark.parametrize("outcome", ["error", "timeout", "lose"])
def test_an_api_server_that_fails_every_third_call_only_slows(world: World, outcome: str) -> None:
    rollout = world.started(world.plan(canary=1, order="name"))
    rule = world.sim.faults.add(outcome, verb="patch", rate=0.34)
    assert world.run(rollout, seconds=3600, step=5).status == "succeeded"
    world.sim.faults.rules.remove(rule)
    assert {world.value(name) for name in ("n1", "n2", "n3")} == {"10"}
