"""A freeze that is set while a step is on its way: a node that was not disturbed yet is not disturbed any more."""

from __future__ import annotations

import pytest

from jobs.engine import reconcile
from jobs.models import Freeze, Rollout, Slot, Step
from jobs.rollouts import freezes, rollout_actions
from tests.jobs.conftest import World

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


def freeze(world: World) -> Freeze:
    return freezes.freeze(cluster=world.cluster, reason="Black Friday", by=world.operator)


def reach(world: World, rollout: Rollout, status: str) -> Step:
    """One transition a slice, so that no stage between is passed over."""
    for _ in range(100):
        step = rollout.steps.get(node_name="n1")
        if step.status == status:
            return step
        reconcile.advance(rollout.pk)
        if rollout.steps.get(node_name="n1").status == step.status:
            world.tick(2)
    raise AssertionError(f"never {status}: {step.status} {step.waiting_for} {step.error}")


def wait(world: World, rollout: Rollout) -> Step:
    for _ in range(10):
        world.slice(rollout)
        world.tick(5)
    return rollout.steps.get(node_name="n1")


def is_cordoned(world: World) -> bool:
    return bool(world.sim.node("n1")["spec"].get("unschedulable"))


def spec_step(world: World) -> str:
    return str(world.sim.tuning("n1")["spec"].get("step") or "")


def blocked_drain(world: World) -> None:
    world.sim.pods.workload("Deployment", "vllm", namespace="chat", replicas=1, labels={"app": "vllm"})
    world.sim.pods.budget("vllm", namespace="chat", labels={"app": "vllm"}, minAvailable=1)
    world.tick(10)


@pytest.mark.parametrize("status", ["admitted", "cordoning", "draining", "applying"])
def test_a_freeze_gives_a_node_back_that_nothing_was_done_to(make_world, status):
    world = make_world(nodes=1)
    if status == "draining":
        blocked_drain(world)
    rollout = world.started(world.plan(world.revision(HUGE if status == "applying" else REBOOT), canary=0))
    reach(world, rollout, status)
    frozen = freeze(world)

    step = wait(world, rollout)

    assert step.status == "queued"
    assert "Black Friday" in rollout.waiting_for
    assert not is_cordoned(world)
    assert not Slot.objects.exists()
    assert spec_step(world) == ""

    if status == "draining":
        world.sim.store.delete("poddisruptionbudgets", "vllm", "chat")
    freezes.lift(frozen, by=world.operator)
    world.run(rollout, seconds=4000, step=10)
    assert rollout.status == "succeeded", rollout.waiting_for
    assert not is_cordoned(world)


def test_a_freeze_before_a_live_write_leaves_the_kernel_alone(make_world):
    """A live step has no other stage between its start and its write."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(canary=0))
    reach(world, rollout, "applying")
    frozen = freeze(world)

    assert wait(world, rollout).status == "queued"
    assert world.value("n1") == "60"
    assert spec_step(world) == ""

    freezes.lift(frozen, by=world.operator)
    world.run(rollout)
    assert (rollout.status, world.value("n1")) == ("succeeded", "10")


def test_a_step_that_has_written_finishes_in_a_freeze_even_if_nobody_noted_the_write(make_world, monkeypatch):
    """Killed between the write and its commit: the object itself knows that the step has begun."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(canary=0))
    reach(world, rollout, "applying")
    real = world.fleet.tune

    def killed(*args):
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.fleet, "tune", killed)
    with pytest.raises(KeyboardInterrupt):
        reconcile.advance(rollout.pk)
    monkeypatch.setattr(world.fleet, "tune", real)
    freeze(world)

    assert wait(world, rollout).status == "succeeded"


def test_a_drain_that_has_evicted_goes_on_in_a_freeze(make_world):
    world = make_world(nodes=1)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=1, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    while not rollout.steps.get().is_disrupted:
        reconcile.advance(rollout.pk)
    freeze(world)
    world.run(rollout, seconds=4000, step=10)
    assert rollout.status == "succeeded", rollout.waiting_for


def test_a_disturbed_node_that_is_tried_again_keeps_cordon_and_slot_through_a_freeze(make_world):
    world = make_world(nodes=1)
    world.sim.nodes.machine("n1").dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=0, reboot_deadline_seconds=600)
    rollout = world.run(world.started(plan), seconds=3000, step=10)
    machine = world.sim.nodes.machine("n1")
    machine.dies_at_reboot = False
    machine.power_on()
    world.tick(300)
    rollout_actions.retry_failed(rollout, by=world.operator)
    reach(world, rollout, "admitted")
    frozen = freeze(world)

    assert wait(world, rollout).status == "queued"
    assert is_cordoned(world)
    assert Slot.objects.get().node.name == "n1"

    freezes.lift(frozen, by=world.operator)
    world.run(rollout, seconds=4000, step=10)
    assert rollout.status == "succeeded", rollout.steps.get().error
    assert not is_cordoned(world)


def test_a_revert_with_a_reason_goes_on_in_the_freeze_it_was_asked_for(make_world):
    world = make_world(nodes=1)
    rollout = world.run(world.started(world.plan(world.revision(HUGE), canary=0)), seconds=1000, step=5)
    freeze(world)
    rollout_actions.revert(rollout, by=world.operator, reason="Trainings crash since.")
    world.run(rollout, seconds=1000, step=5)
    assert rollout.status == "reverted", rollout.waiting_for


def test_an_abort_takes_a_step_that_the_freeze_sent_back_out_of_the_queue(make_world):
    world = make_world(nodes=1)
    blocked_drain(world)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    reach(world, rollout, "draining")
    freeze(world)
    reconcile.advance(rollout.pk)
    rollout.refresh_from_db()
    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout, seconds=100)

    assert (rollout.status, rollout.steps.get().status) == ("cancelled", "skipped")
    assert not is_cordoned(world)
