"""Attacks on the controls: pause, abort, retry, skip and revert, pressed on a rollout in an awkward state."""

from __future__ import annotations

from datetime import timedelta

import pytest

from common.clock import now
from common.errors import WrongState
from jobs.engine import reconcile, reverting
from jobs.models import PlanNode, Rollout, Slot, Step
from jobs.rollouts import possible_actions, rollout_actions

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


def statuses(rollout: Rollout) -> dict[str, str]:
    return dict(rollout.steps.values_list("node_name", "status"))


def offered(rollout: Rollout, verb: str) -> bool:
    return next(a for a in possible_actions.all_actions(rollout) if a.verb == verb).is_possible


def stuck_before_a_pdb(world, **strategy):
    """A step that drains for ever: its PodDisruptionBudget allows nothing."""
    world.sim.pods.workload("Deployment", "vllm", namespace="chat", replicas=1, labels={"app": "vllm"})
    world.sim.pods.budget("vllm", namespace="chat", labels={"app": "vllm"}, minAvailable=1)
    world.tick(10)
    return world.started(world.plan(world.revision(REBOOT), canary=0, **strategy))


def died_at_reboot(world, **strategy):
    """n1 failed after its first disruptive write: cordoned, with its slot; the rollout has stopped."""
    world.sim.nodes.machine("n1").dies_at_reboot = True
    given = {"canary": 1, "batch": "1", "order": "name", "reboot_deadline_seconds": 60} | strategy
    rollout = world.run(world.started(world.plan(world.revision(REBOOT), **given)), seconds=2000, step=10)
    assert rollout.status == "stopped"
    return rollout


# ── a revert goes backwards only ──────────────────────────────────────────────────────────────────────────────────────


def test_putting_a_failed_node_back_starts_no_other_node(world):
    """The strategy says: revert the failed node, then wait for an operator."""
    plan = world.plan(canary=1, batch="1", order="name", on_failure="revert-node", step_deadline_seconds=30)
    rollout = world.started(plan)
    world.sim.agents.restart("n1", "hanging")
    world.sim.after(40, lambda: world.sim.agents.restart("n1", "normal"))

    world.run(rollout, seconds=200)

    assert statuses(rollout) == {"n1": "reverted", "n2": "queued", "n3": "queued"}
    assert rollout.status == "paused"
    assert offered(rollout, "resume")
    assert offered(rollout, "abort")


def test_putting_one_node_of_a_paused_rollout_back_starts_no_other_node(world):
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "succeeded")
    rollout_actions.pause(rollout, by=world.operator)
    world.run(rollout)
    before = {n for n, s in statuses(rollout).items() if s == "queued"}

    rollout_actions.revert(rollout, by=world.operator, step=rollout.steps.get(node_name="n1"))
    world.run(rollout, seconds=60)

    assert statuses(rollout)["n1"] == "reverted"
    assert {n for n, s in statuses(rollout).items() if s == "queued"} == before
    assert rollout.status == "paused"

    rollout_actions.resume(rollout, by=world.operator)
    world.run(rollout)
    assert statuses(rollout) == {"n1": "reverted", "n2": "succeeded", "n3": "succeeded"}


def test_after_one_node_was_put_back_the_others_still_can_be(world):
    rollout = world.run(world.started())
    rollout_actions.revert(rollout, by=world.operator, step=rollout.steps.get(node_name="n2"))
    world.run(rollout)
    assert rollout.status == "succeeded"
    assert offered(rollout, "revert")

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "reverted"
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}


def test_retrying_a_revert_that_failed_takes_no_other_node_forwards(world):
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n2", times=2)
    rollout = world.run(world.started(world.plan(canary=0, batch="3", max_failures=0)))
    assert statuses(rollout)["n2"] == "failed"
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1", times=1)
    rollout_actions.revert(rollout, by=world.operator, step=rollout.steps.get(node_name="n1"))
    world.run(rollout)
    assert statuses(rollout)["n1"] == "failed"

    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=60)

    assert rollout.steps.get(node_name="n2").direction == "forward"
    assert world.value("n2") == "60"
    assert (statuses(rollout)["n1"], statuses(rollout)["n2"]) == ("reverted", "failed")


def test_a_revert_also_puts_back_a_node_that_was_skipped_after_it_was_written(make_world):
    world = make_world(nodes=1)
    world.sim.faults.hit_agents = True
    world.sim.faults.add("error", verb="patch", resource="nodetunings", subresource="status")
    rollout = world.started(world.plan(canary=0, step_deadline_seconds=10))
    world.until(rollout, "failed")
    world.sim.faults.rules.clear()
    world.tick(30)
    assert world.value("n1") == "10", "its agent wrote, and could not say so"
    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    world.run(rollout)

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert world.value("n1") == "60"


# ── a revert undoes only its own writes ───────────────────────────────────────────────────────────────────────────────


def test_a_revert_is_refused_when_a_later_rollout_dropped_the_key(world):
    """The later revision wants no key at all, so no setting state of it names the later rollout."""
    first = world.run(world.started())
    later = world.run(world.started(world.plan(world.revision({}, labels={"example.com/tier": "gold"}))))
    assert later.status == "succeeded"

    with pytest.raises(WrongState, match="later rollout"):
        rollout_actions.revert(first, by=world.operator)


def test_a_revert_that_failed_cannot_be_retried_over_a_later_rollout(world):
    first = world.run(world.started())
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1", times=1)
    rollout_actions.revert(first, by=world.operator)
    world.run(first)
    assert statuses(first)["n1"] == "failed"
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "20"}))))
    assert world.value("n1") == "20"

    with pytest.raises(WrongState, match="later rollout"):
        rollout_actions.retry_failed(first, by=world.operator)
    assert world.value("n1") == "20"


def test_a_node_that_moved_before_anything_was_written_keeps_the_other_hands_value(world):
    """Law 7: the first value seen is no original as long as Setpoint has not written."""
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.run(rollout, seconds=30)
    assert statuses(rollout)["n2"] == "held"
    assert world.value("n2") == "33"
    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout)

    if offered(rollout, "revert"):
        rollout_actions.revert(rollout, by=world.operator)
        world.run(rollout)
    assert world.value("n2") == "33"


def test_the_original_is_the_value_before_the_first_write_not_before_the_first_try(world):
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.run(rollout, seconds=30)
    rollout_actions.skip(rollout, rollout.steps.get(node_name="n2"), by=world.operator)
    world.run(rollout)
    world.tick(60)

    again = world.run(world.started(world.plan(world.revision({"vm.swappiness": "20"}), canary=0, batch="3")))
    assert again.status == "succeeded"
    assert world.state("n2").original == "33"
    assert world.state("n1").original == "60"


def test_labels_of_a_step_that_failed_at_its_spec_can_be_put_back(make_world):
    """The labels were written, the spec was refused: the rollout did change the node."""
    world = make_world(nodes=1)
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1", times=1)
    plan = world.plan(world.revision({"vm.swappiness": "10"}, labels={"example.com/tier": "gold"}), canary=0)
    rollout = world.run(world.started(plan))
    assert world.sim.node("n1")["metadata"]["labels"]["example.com/tier"] == "gold"

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert "example.com/tier" not in world.sim.node("n1")["metadata"]["labels"]
    assert rollout.status == "reverted"


# ── aborting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_aborted_rollout_starts_nothing_even_if_a_dead_worker_held_the_queue(world):
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "succeeded")
    Step.objects.filter(status="queued").update(claim="dead", lease_until=now() + timedelta(seconds=5))
    rollout_actions.abort(rollout, by=world.operator)
    for _ in range(20):
        world.slice(rollout)
        world.tick(2)

    assert rollout.status == "cancelled"
    assert {s for n, s in statuses(rollout).items() if n != "n1"} <= {"skipped", "succeeded"}
    assert world.value("n3") == "60"


def test_a_held_node_of_an_aborted_rollout_is_free_for_others(world):
    rollout = world.started(world.plan(canary=0, batch="3", order="name"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.tick(10)
    world.run(rollout, seconds=20)
    assert statuses(rollout)["n2"] == "held"

    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "cancelled"
    assert not rollout.steps.filter(is_live=True).exists()
    other = world.run(world.started(world.plan(world.revision({"vm.swappiness": "20"}))))
    assert other.status == "succeeded"


def test_a_cancelled_rollouts_failed_node_can_still_be_given_back(make_world):
    """Law 14 promises retry, revert or skip; after an abort at least skip must work."""
    world = make_world(nodes=2)
    rollout = died_at_reboot(world)
    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.status == "cancelled"
    assert Slot.objects.get().node.name == "n1"

    assert offered(rollout, "skip")
    rollout_actions.skip(rollout, rollout.steps.get(node_name="n1"), by=world.operator)
    for _ in range(20):  # until its agent could not carry out a grant any more
        reconcile.run(rollout.pk)
        world.tick(5)

    assert statuses(rollout)["n1"] == "skipped"
    assert not world.sim.node("n1")["spec"].get("unschedulable")
    assert not Slot.objects.exists()


def test_one_of_two_failed_nodes_is_given_back_when_it_is_skipped(make_world):
    """The rollout stays failed because of the other one; the skipped node must not hang in between."""
    world = make_world(nodes=2)
    for name in ("n1", "n2"):
        world.sim.nodes.machine(name).dies_at_reboot = True
    plan = world.plan(
        world.revision(REBOOT), canary=0, batch="1", order="name", reboot_deadline_seconds=60, max_failures=0
    )
    type(world.cluster).objects.update(budget=2)
    rollout = world.run(world.started(plan), seconds=2000, step=10)
    Rollout.objects.filter(pk=rollout.pk).update(status="failed")
    Step.objects.filter(rollout=rollout, status="queued").update(status="failed", is_live=False)
    rollout.refresh_from_db()

    rollout_actions.skip(rollout, rollout.steps.get(node_name="n1"), by=world.operator)
    for _ in range(20):  # until its agent could not carry out a grant any more
        reconcile.run(rollout.pk)
        world.tick(5)

    assert statuses(rollout)["n1"] == "skipped"
    assert not Slot.objects.filter(node__name="n1").exists()


def test_abort_and_revert_gives_a_draining_node_back_instead_of_carrying_on(make_world):
    world = make_world(nodes=1)
    rollout = stuck_before_a_pdb(world)
    world.until(rollout, "draining")

    rollout_actions.abort(rollout, by=world.operator, in_flight="revert")
    world.run(rollout, seconds=60)

    assert rollout.status == "cancelled"
    assert statuses(rollout) == {"n1": "skipped"}
    assert not world.sim.node("n1")["spec"].get("unschedulable")
    assert not Slot.objects.exists()


# ── before it began ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_pausing_and_resuming_before_the_start_does_not_slip_past_the_digest(world):
    rollout = world.started()
    rollout_actions.pause(rollout, by=world.operator)
    PlanNode.objects.filter(plan=rollout.plan, name="n1").update(uid="another")
    rollout_actions.resume(rollout, by=world.operator)

    world.run(rollout, seconds=30)

    assert rollout.status == "cancelled"
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}


def test_resuming_before_the_start_keeps_the_time_of_the_start(world, clock):
    rollout = rollout_actions.start(world.approved(), by=world.operator, at=clock() + timedelta(minutes=10))
    rollout_actions.pause(rollout, by=world.operator)
    rollout_actions.resume(rollout, by=world.operator)
    world.run(rollout, seconds=60)
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}

    world.tick(600)
    world.run(rollout)
    assert rollout.status == "succeeded"


def test_a_paused_rollout_that_was_to_start_later_is_cancelled_at_once(world, clock):
    rollout = rollout_actions.start(world.approved(), by=world.operator, at=clock() + timedelta(days=3))
    rollout_actions.pause(rollout, by=world.operator)
    rollout_actions.abort(rollout, by=world.operator)

    assert rollout.status == "cancelled"
    assert not rollout.steps.filter(is_live=True).exists()


def test_a_start_that_is_refused_leaves_no_node_locked_if_the_worker_dies(world, monkeypatch):
    rollout = world.started()
    PlanNode.objects.filter(plan=rollout.plan, name="n1").update(uid="another")

    class Killed(BaseException):
        pass

    def killed(*args, **kwargs):
        raise Killed

    real = reverting.end_queued
    monkeypatch.setattr(reverting, "end_queued", killed)
    with pytest.raises(Killed):
        reconcile.advance(rollout.pk)
    monkeypatch.setattr(reverting, "end_queued", real)
    world.run(rollout, seconds=30)

    assert rollout.status == "cancelled"
    assert not rollout.steps.filter(is_live=True).exists()
