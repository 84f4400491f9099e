"""Laws 1 and 7 for network cards: a node is drained for what may cost it the link, and gets its own values back."""

from __future__ import annotations

import pytest

from jobs.models import Step
from jobs.rollouts import rollout_actions
from profiles.catalog import known_settings

MTU = "nic.rdma.mtu"
KEYS = (MTU, "nic.default-route.rx_ring", "nic.default-route.tso")


@pytest.fixture(autouse=True)
def _observed(make_world, monkeypatch):
    """The tests of the engine observe few keys; these are more, and it is set after theirs."""
    monkeypatch.setattr(known_settings, "observable_keys", lambda: ("vm.swappiness", *KEYS))


def _card(world, place, node="n1"):
    return world.sim.nodes.machine(node).kernel.read(place)


def _stages(rollout):
    return set(rollout.steps.get(node_name="n1").stages)


def _plan(world, settings):
    return world.plan(world.revision(settings), canary=0)


def test_a_node_is_drained_for_its_cards_and_nothing_restarts(make_world):
    world = make_world()
    plan = _plan(world, {MTU: "9000", "nic.default-route.rx_ring": ">= 4096"})
    assert (plan.worst_class, plan.summary["drains"], plan.summary["reboots"]) == ("drain", 1, 0)
    boot = world.sim.nodes.machine("n1").kernel.boot_id

    rollout = world.run(world.started(plan), step=2)

    assert rollout.status == "succeeded", rollout.steps.get().error
    assert {"cordoning", "draining", "applying", "returning"} <= _stages(rollout)
    assert "restarting" not in _stages(rollout)
    assert world.sim.nodes.machine("n1").kernel.boot_id == boot
    assert [_card(world, f"/sys/class/net/{name}/mtu") for name in ("eno1", "roce0", "roce1")] == [
        "1500",
        "9000",
        "9000",
    ]
    assert [_card(world, f"/nic/{name}/rx_ring") for name in ("eno1", "roce0")] == ["4096", "1024"]


def test_an_offload_that_no_driver_stops_for_drains_nothing(make_world):
    world = make_world()
    plan = _plan(world, {"nic.default-route.tso": "0"})
    assert plan.worst_class == "live"

    rollout = world.run(world.started(plan), step=2)

    assert rollout.status == "succeeded", rollout.steps.get().error
    assert "cordoning" not in _stages(rollout)
    assert _card(world, "/nic/eno1/tso") == "0"


def test_a_revert_drains_again_and_gives_each_card_its_own_back(make_world):
    world = make_world()
    rollout = world.run(world.started(_plan(world, {MTU: "9000"})), step=2)
    assert rollout.status == "succeeded", rollout.steps.get().error

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, step=2)

    assert rollout.steps.get().status == Step.Status.REVERTED, rollout.steps.get().error
    assert _card(world, "/sys/class/net/roce1/mtu") == "1500"


def test_more_than_the_driver_takes_fails_with_both_numbers_and_changes_nothing(make_world):
    world = make_world()

    rollout = world.run(world.started(_plan(world, {MTU: "9979"})), step=2)

    step = rollout.steps.get()
    assert step.status == "failed"
    assert "roce0: 9979 is more than 9978" in step.error
    assert _card(world, "/sys/class/net/roce0/mtu") == "1500"


def test_a_value_comes_back_after_a_reboot_that_was_not_setpoint_s(make_world):
    world = make_world()
    rollout = world.run(world.started(_plan(world, {MTU: "9000"})), step=2)
    assert rollout.status == "succeeded", rollout.steps.get().error
    machine = world.sim.nodes.machine("n1")

    machine.reboot()
    world.tick(machine.hardware.boot_seconds + 120)

    assert _card(world, "/sys/class/net/roce0/mtu") == "9000"
