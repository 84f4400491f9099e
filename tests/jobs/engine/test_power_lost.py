"""A node that loses its power in any stage of its step, forwards or back: it is never lost, and its values are told.

The agent is the product's own, on a simulated machine; tests/node does it to a machine with a kernel of its own.
"""

from __future__ import annotations

from typing import Any

import pytest

from clusters import objects
from jobs.engine import commit
from jobs.models import Rollout, Slot, Step
from jobs.rollouts import rollout_actions
from tests.jobs.conftest import World

WANTED = {"cmdline.iommu": "pt", "vm.swappiness": "10"}
FORWARD = ("draining", "applying", "restarting", "verifying", "returning", "soaking")
BACK = ("draining", "restarting", "verifying")
MINUTES_WITHOUT_POWER = 5
"""Longer than it takes to notice a kubelet and an agent that are silent."""


class Cut:
    """Switches the machine off at the moment when its step comes to a stage, once."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._machine, self._world = world.sim.nodes.machine("n1"), world
        self._stage = ""
        self._change_status = commit.change_status
        monkeypatch.setattr(commit, "change_status", self._change)

    def at(self, stage: str) -> None:
        self._stage = stage

    def _change(self, step: Step, to: str, **fields: Any) -> None:
        self._change_status(step, to, **fields)
        if to == self._stage:
            self._stage = ""
            self._machine.power_off()

    def until_back(self, rollout: Rollout) -> None:
        """Run until the power is lost; on with it after some minutes in which the engine sees that."""
        for _ in range(200):
            if not self._machine.is_up and not self._stage:
                break
            self._world.slice(rollout)
            self._world.tick(2)
        assert not self._machine.is_up, f"its step never was {self._stage}"
        for _ in range(MINUTES_WITHOUT_POWER):
            self._world.slice(rollout)
            self._world.tick(60)
        self._machine.power_on()


def finish(world: World, rollout: Rollout, status: str) -> None:
    """Run until the rollout has ended so, with one retry by the operator, who is told why it is needed."""
    world.run(rollout, seconds=4 * 3600, step=10)
    step = rollout.steps.get()
    if rollout.status != status:
        assert step.status in (Step.Status.FAILED, Step.Status.HELD), (step.status, rollout.waiting_for)
        assert step.error
        assert "n1" in step.error or "cmdline.iommu" in step.error
        rollout_actions.retry_failed(rollout, by=world.operator)
        world.run(rollout, seconds=4 * 3600, step=10)
    assert rollout.status == status, (step.error, rollout.waiting_for)


def values(world: World) -> tuple[bool, str | None]:
    kernel = world.sim.nodes.machine("n1").kernel
    return "iommu=pt" in kernel.read("/proc/cmdline").split(), kernel.read("/proc/sys/vm/swappiness").strip()


def is_given_back(world: World) -> bool:
    node = world.sim.node("n1")
    return objects.is_ready(node) and not objects.is_cordoned(node) and not Slot.objects.exists()


@pytest.mark.every_case
@pytest.mark.parametrize("stage", FORWARD)
def test_power_lost_in_a_stage_of_a_step_costs_a_retry_at_most(make_world: Any, monkeypatch: Any, stage: str) -> None:
    world = make_world(nodes=1)
    cut = Cut(world, monkeypatch)
    rollout = world.started(world.plan(world.revision(WANTED), canary=0, soak_seconds=60))

    cut.at(stage)
    cut.until_back(rollout)
    finish(world, rollout, "succeeded")

    assert values(world) == (True, "10")
    assert is_given_back(world)


@pytest.mark.every_case
@pytest.mark.parametrize("stage", BACK)
def test_power_lost_in_a_stage_of_a_revert_costs_a_retry_at_most(make_world: Any, monkeypatch: Any, stage: str) -> None:
    world = make_world(nodes=1)
    before = values(world)
    cut = Cut(world, monkeypatch)
    rollout = world.run(world.started(world.plan(world.revision(WANTED), canary=0)), seconds=4000, step=5)
    assert (rollout.status, values(world)) == ("succeeded", (True, "10"))

    cut.at(stage)
    rollout_actions.revert(rollout, by=world.operator)
    cut.until_back(rollout)
    finish(world, rollout, "reverted")

    assert values(world) == before
    assert is_given_back(world)


def test_a_boot_that_lost_an_argument_during_the_soak_is_no_success(make_world: Any) -> None:
    """GRUB replays no file system's journal: seconds after a change, a power cut brings the menu from before."""
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    rollout = world.started(world.plan(world.revision(WANTED), canary=0, soak_seconds=60))
    world.until(rollout, "soaking", seconds=4000, longest=5)
    menu, machine.kernel.next_cmdline = machine.kernel.next_cmdline, machine.kernel.hardware.cmdline
    machine.power_off()
    machine.power_on()
    machine.kernel.next_cmdline = menu

    world.run(rollout, seconds=4 * 3600, step=10)

    step = rollout.steps.get()
    assert (rollout.status, step.status, values(world)[0]) == ("stopped", "failed", False)
    assert "cmdline.iommu is absent" in step.error
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=4 * 3600, step=10)
    assert (rollout.status, values(world)) == ("succeeded", (True, "10"))


def test_a_soak_does_not_end_on_the_agents_answer_of_the_boot_before(make_world: Any) -> None:
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    rollout = world.started(world.plan(world.revision(WANTED), canary=0, soak_seconds=60))
    world.until(rollout, "soaking", seconds=4000, longest=5)
    world.sim.agents.kill("n1")
    machine.power_off()
    machine.power_on()
    for _ in range(12):
        world.slice(rollout)
        world.tick(10)

    step = rollout.steps.get()
    assert (step.status, "waiting for its agent to answer" in step.waiting_for) == ("soaking", True), step.error
    world.sim.agents.restart("n1", "normal")
    world.run(rollout, seconds=4 * 3600, step=10)
    assert (rollout.status, values(world)) == ("succeeded", (True, "10")), rollout.steps.get().error
