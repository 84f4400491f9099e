"""A step that ends asks nothing of its node any more: no late reboot, no late write (laws 1, 6 and 14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusters.fleet import FleetUnavailable
from common.clock import now
from contract.nodetuning import RestartGrant, Spec
from jobs.engine import reconcile
from jobs.models import Rollout, Slot, Step
from jobs.rollouts import rollout_actions
from simfleet import SimFleet
from tests.jobs.conftest import World
from tests.jobs.moments import is_cordoned, reach

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}
GRANT = RestartGrant("an-earlier-one", "reboot", "any-boot", "2999-01-01T00:00:00Z")
SHORT = {"step_deadline_seconds": 60, "reboot_deadline_seconds": 120, "drain_timeout_seconds": 60}


class Killed(BaseException):
    """Kill -9 in the middle of a step: no handler of the code under test may catch it."""


def spec_of(world: World, node: str = "n1") -> dict[str, Any]:
    return dict(world.fleet.tuning(node)["spec"])


def boots(world: World, node: str = "n1") -> str:
    return str(world.sim.kernel(node).boot_id)


def cut_off(world: World, node: str = "n1") -> None:
    """Cut the node's agent off: no write reaches it any more."""
    world.sim.agents.restart(node, "hanging")


def granted_and_cut_off(world: World, settings: dict[str, str] = REBOOT, nodes: int = 1) -> Rollout:
    """Every node has a grant in its object, and no agent has heard of it."""
    world.cluster.budget = nodes
    world.cluster.save(update_fields=["budget"])
    strategy = SHORT | {"canary": 0, "batch": str(nodes), "max_failures": nodes}
    rollout = world.started(world.plan(world.revision(settings), **strategy))
    for number in range(1, nodes + 1):
        reach(world, rollout, "restarting", f"n{number}")
    for _ in range(60):
        for step in rollout.steps.filter(granted_at=None):
            if (world.fleet.tuning(step.node_name).get("status") or {}).get("step") == str(step.pk):
                cut_off(world, step.node_name)
        reconcile.advance(rollout.pk)
        if not rollout.steps.filter(granted_at=None).exists():
            break
        world.tick(1)
    assert all(spec_of(world, f"n{number}").get("restart") for number in range(1, nodes + 1))
    rollout.refresh_from_db()
    return rollout


def ended(world: World, rollout: Rollout, seconds: int = 1200) -> Rollout:
    for _ in range(seconds // 10):
        world.slice(rollout)
        if not rollout.steps.filter(status__in=Step.ACTIVE).exists():
            return rollout
        world.tick(10)
    raise AssertionError([(s.node_name, s.status, s.waiting_for) for s in rollout.steps.all()])


def heal(world: World, *nodes: str) -> None:
    for node in nodes or ("n1",):
        world.sim.agents.restart(node, "normal")
    for _ in range(20):
        world.tick(10)


@pytest.mark.parametrize("settings", [REBOOT, HUGE])
def test_a_skipped_node_is_not_restarted_when_its_agent_comes_back(make_world, settings):
    world = make_world(nodes=1)
    rollout = granted_and_cut_off(world, settings)
    boot = boots(world)
    ended(world, rollout)
    step = rollout.steps.get()
    assert step.status == "failed"

    rollout_actions.skip(rollout, step, by=world.operator)
    ended(world, rollout)

    assert rollout.steps.get().status == "skipped"
    assert not is_cordoned(world)
    assert (spec_of(world)["mode"], spec_of(world).get("restart")) == ("observe", None)
    heal(world)
    assert boots(world) == boot
    assert not (world.fleet.tuning("n1")["status"].get("restart"))


def test_in_a_partition_no_node_that_was_skipped_reboots_when_it_heals(make_world):
    world = make_world(nodes=5)
    rollout = granted_and_cut_off(world, nodes=5)
    before = {f"n{n}": boots(world, f"n{n}") for n in range(1, 6)}
    ended(world, rollout)
    for step in rollout.steps.all():
        rollout_actions.skip(rollout, step, by=world.operator)
    ended(world, rollout)
    assert not Slot.objects.exists()

    heal(world, *before)

    assert {name: boots(world, name) for name in before} == before
    assert not any(is_cordoned(world, name) for name in before)


def test_an_abort_leaves_no_grant_behind_that_a_node_in_service_could_carry_out(make_world):
    world = make_world(nodes=1)
    rollout = granted_and_cut_off(world)
    boot = boots(world)
    rollout_actions.abort(rollout, by=world.operator)
    ended(world, rollout)
    heal(world)
    assert is_cordoned(world) or boots(world) == boot


@pytest.mark.parametrize("point", range(12))
def test_the_grant_goes_before_the_cordon_whenever_a_worker_is_killed(make_world, monkeypatch, point):
    """Killed before and after each call to the cluster: no node is ever in service that may still be rebooted."""
    world = make_world(nodes=1)
    rollout = granted_and_cut_off(world)
    boot = boots(world)
    ended(world, rollout)
    world.fleet.tune(
        "n1", replace(Spec.from_json(spec_of(world)), restart=replace(GRANT, boot_id=boot))
    )  # as if nothing had withdrawn it then
    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    left = [point]

    def fused(name: str) -> Any:
        real = getattr(SimFleet, name)

        def calling(self: SimFleet, *args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise Killed
            answer = real(self, *args, **more)
            left[0] -= 1
            if left[0] == -1:
                raise Killed
            return answer

        return calling

    was_killed = False
    with monkeypatch.context() as patched:
        for name in ("tuning", "tune", "node", "uncordon"):
            patched.setattr(SimFleet, name, fused(name))
        for _ in range(60):
            try:
                reconcile.advance(rollout.pk)
            except Killed:
                was_killed = True
                Step.objects.update(lease_until=now())
            raw = world.sim.store.get("nodetunings", "n1").raw
            assert is_cordoned(world) or not raw["spec"].get("restart")
            if rollout.steps.get().status == "skipped":
                break
            world.tick(5)
    assert was_killed
    assert rollout.steps.get().status == "skipped"
    heal(world)
    assert boots(world) == boot


def test_a_node_keeps_cordon_and_slot_while_its_grant_cannot_be_withdrawn(make_world):
    world = make_world(nodes=1)
    rollout = granted_and_cut_off(world)
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1")
    ended(world, rollout)
    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    for _ in range(60):
        world.slice(rollout)
        world.tick(10)

    assert is_cordoned(world)
    assert Slot.objects.count() == 1
    assert spec_of(world)["restart"]


def test_a_failed_node_is_not_rebooted_by_an_agent_that_comes_back_later(make_world):
    world = make_world(nodes=1)
    rollout = granted_and_cut_off(world)
    boot = boots(world)
    ended(world, rollout)
    assert rollout.steps.get().status == "failed"
    heal(world)
    assert boots(world) == boot


def test_a_live_step_that_ended_is_not_written_later(make_world):
    world = make_world(nodes=1)
    cut_off(world)
    rollout = world.started(world.plan(canary=0, **SHORT))
    ended(world, rollout)
    assert rollout.steps.get().status == "failed"
    heal(world)
    assert world.value("n1") == "60"
    assert spec_of(world)["mode"] == "observe"


def test_a_live_step_stays_while_the_api_server_cannot_take_its_spec_back(make_world, monkeypatch):
    world = make_world(nodes=1)
    cut_off(world)
    rollout = world.started(world.plan(canary=0, **SHORT))
    reach(world, rollout, "verifying")
    real, is_away = SimFleet.tune, [True]

    def tune(self: SimFleet, *args: Any, **more: Any) -> Any:
        if is_away[0]:
            raise FleetUnavailable("no answer")
        return real(self, *args, **more)

    monkeypatch.setattr(SimFleet, "tune", tune)
    for _ in range(40):
        world.slice(rollout)
        world.tick(10)
    step = rollout.steps.get()
    assert step.status == "verifying"
    assert "withdrawn" in step.waiting_for
    is_away[0] = False
    ended(world, rollout)
    assert rollout.steps.get().status == "failed"
    heal(world)
    assert world.value("n1") == "60"


def test_a_grant_ends_by_itself(make_world):
    """The grant expires even if the control plane cannot withdraw it: it has died, or lost its database."""
    world = make_world(nodes=1)
    granted_and_cut_off(world)
    boot = boots(world)
    world.tick(3600)
    heal(world)
    assert boots(world) == boot
    assert world.fleet.tuning("n1")["status"]["restart"]["state"] == "Refused"


def test_a_grant_that_is_taken_in_time_is_carried_out(make_world):
    world = make_world(nodes=1)
    granted_and_cut_off(world)
    boot = boots(world)
    heal(world)
    assert boots(world) != boot
