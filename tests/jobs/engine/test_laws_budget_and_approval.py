"""Laws 1 to 3 of the engine: the budget, what was approved, and stopping at failures."""

from __future__ import annotations

import pytest

from clusters.models import Cluster
from common.errors import WrongState
from jobs.approvals import verdicts
from jobs.forecast.strategy import Strategy
from jobs.models import ChangeSet, Plan, PlanNode, Slot, Step
from jobs.planning import digests
from jobs.rollouts import freezes, rollout_actions
from tests import marks

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


def cordons(world):
    return [
        e for e in world.sim.audit if e.resource == "nodes" and (e.request or {}).get("spec", {}).get("unschedulable")
    ]


# ── law 1: budget ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_never_more_nodes_out_than_the_budget(make_world):
    world = make_world(nodes=5)
    rollout = world.run(world.started(world.plan(world.revision(REBOOT), canary=0, batch="5")), seconds=4000, step=10)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.sim.nodes.peak_unavailable() == 1
    assert len(cordons(world)) == 5


def test_a_larger_budget_is_used_and_never_exceeded(make_world):
    world = make_world(nodes=5)
    Cluster.objects.update(budget=2)
    world.cluster.refresh_from_db()
    world.run(world.started(world.plan(world.revision(REBOOT), canary=0, batch="5")), seconds=4000, step=10)

    assert world.sim.nodes.peak_unavailable() == 2


def test_a_strategy_can_only_lower_the_budget(make_world):
    world = make_world(nodes=4)
    Cluster.objects.update(budget=2)
    world.cluster.refresh_from_db()
    plan = world.plan(world.revision(REBOOT), canary=0, batch="4", budget=1)
    world.run(world.started(plan), seconds=4000, step=10)
    assert world.sim.nodes.peak_unavailable() == 1

    assert Strategy(budget=50).allowed_out(2) == 2


def test_a_node_that_somebody_else_took_out_counts(world):
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    world.sim.nodes.cordon("n3")
    world.look()
    rollout = rollout_actions.start(plan, by=world.operator)

    for _ in range(30):
        world.slice(rollout)
        world.tick(2)

    assert not Slot.objects.exists()
    assert not [e for e in cordons(world) if e.name != "n3"]
    assert any("0 by Setpoint of 1 allowed, 1 by others" in step.waiting_for for step in rollout.steps.all())

    world.sim.nodes.cordon("n3", is_cordoned=False)
    world.run(rollout, seconds=4000, step=10)
    assert rollout.status == "succeeded"
    assert world.sim.nodes.peak_unavailable() == 1


@pytest.mark.parametrize("operator", ["gpu", "ofed"])
def test_a_node_whose_driver_an_operator_replaces_counts_and_is_not_touched(world, operator):
    """The node counts before its operator cordons it, and although the plan takes what is out of service."""
    plan = world.plan(world.revision(REBOOT), canary=0, batch="3", include_unavailable=True)
    rollout = world.started(plan)
    world.sim.nodes.upgrade_driver("n1", "wait-for-jobs-required", operator=operator)
    world.look()

    for _ in range(10):
        world.slice(rollout)
        world.tick(2)

    assert not cordons(world)
    reasons = {step.node_name: step.waiting_for for step in rollout.steps.all()}
    assert reasons["n1"] == "An operator upgrades the driver of n1 (wait-for-jobs-required)."
    assert reasons["n2"] == "Needs a slot: 1 node unavailable: 0 by Setpoint of 1 allowed, 1 by others."

    world.sim.nodes.upgrade_driver("n1", "upgrade-done", operator=operator)
    world.run(rollout, seconds=4000, step=10)
    assert rollout.status == "succeeded", rollout.waiting_for


def test_a_plan_leaves_a_node_to_the_operator_that_works_on_its_driver(world):
    world.sim.nodes.upgrade_driver("n1", "upgrade-required")  # its turn has not come
    world.sim.nodes.upgrade_driver("n2", "pod-deletion-required")
    world.sim.nodes.upgrade_driver("n3", "upgrade-failed")  # no operator works there any more
    world.look()

    plan = world.plan(world.revision(REBOOT), include_unavailable=True)

    assert set(plan.nodes.filter(left_out="").values_list("name", flat=True)) == {"n1", "n3"}
    assert set(plan.nodes.filter(is_unavailable=True).values_list("name", flat=True)) == {"n2", "n3"}
    (finding,) = [f for f in plan.findings if f["code"] == "left-out"]
    assert "An operator upgrades their driver (pod-deletion-required)" in finding["detail"], finding


def test_nodes_that_the_approved_plan_lists_as_out_do_not_count(world):
    world.sim.nodes.cordon("n3")
    world.look()
    plan = world.plan(world.revision(REBOOT), canary=0, batch="3")
    assert [n.name for n in plan.nodes.filter(is_unavailable=True)] == ["n3"]

    rollout = world.run(world.started(plan), seconds=4000, step=10)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert {s.node_name for s in rollout.steps.all()} == {"n1", "n2"}


def test_a_broken_node_can_be_repaired_in_its_own_place(world):
    world.sim.nodes.cordon("n3")
    world.look()
    plan = world.plan(world.revision(REBOOT), canary=0, batch="3", include_unavailable=True)

    rollout = world.run(world.started(plan), seconds=4000, step=10)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.sim.node("n3")["spec"].get("unschedulable"), "the person's cordon stays theirs"


def test_control_plane_nodes_go_one_at_a_time(make_world):
    world = make_world(nodes=1)
    for name in ("m1", "m2", "m3"):
        world.sim.add_node(name, control_plane=True, labels={"pool": "train"})
    Cluster.objects.update(budget=4)
    world.cluster.refresh_from_db()
    world.observe()
    plan = world.plan(world.revision(REBOOT), canary=0, batch="4")
    assert [b["nodes"] for b in plan.summary["batches"]] == [1, 1, 1, 1]

    # Even if all were in one batch, the ledger holds them apart.
    PlanNode.objects.filter(plan=plan).update(batch=1)
    plan.digest = digests.plan_digest(plan)
    marks.put(Plan.objects.filter(pk=plan.pk), digest=plan.digest)
    world.run(world.started(plan), seconds=6000, step=10)

    for moment in world.sim.nodes.witness:
        assert len([n for n in moment.nodes if n.startswith("m")]) <= 1


def test_two_rollouts_of_one_cluster_share_the_budget(make_world):
    world = make_world(nodes=4)
    first = world.started(world.plan(world.revision(REBOOT), canary=0, batch="4"))
    with pytest.raises(WrongState, match=f"R-{first.number}"):
        world.started(world.plan(world.revision(HUGE), canary=0, batch="4"))


# ── law 2: what was approved is what runs ─────────────────────────────────────────────────────────────────────────────


def test_a_plan_changed_after_approval_does_not_start(world):
    plan = world.approved()
    PlanNode.objects.filter(plan=plan, name="n1").update(uid="another")

    with pytest.raises(WrongState, match="digest"):
        rollout_actions.start(plan, by=world.operator)


def test_a_plan_changed_between_start_and_its_time_does_not_run(world):
    plan = world.approved()
    rollout = rollout_actions.start(plan, by=world.operator)
    row = PlanNode.objects.filter(plan=plan, name="n1").get()
    other = ChangeSet.objects.create(pk="f" * 64, content=row.change_set.content, worst_class="live")
    PlanNode.objects.filter(pk=row.pk).update(change_set=other)

    world.run(rollout)

    assert rollout.status == "cancelled"
    assert world.value("n1") == "60"


def test_a_change_set_that_was_tampered_with_is_not_carried_out(world):
    rollout = world.started()
    row = ChangeSet.objects.get()
    row.content["items"][0]["expect"] = "59"
    ChangeSet.objects.filter(pk=row.pk).update(content=row.content)

    world.run(rollout, seconds=10)

    assert {s.status for s in rollout.steps.filter(batch=1)} == {"held"}

    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}


def test_a_key_that_moved_since_the_plan_holds_its_node_and_is_not_written(world):
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.tick(10)

    world.run(rollout, seconds=60)

    steps = {s.node_name: s for s in rollout.steps.all()}
    assert steps["n2"].status == "held"
    assert "33" in steps["n2"].error
    assert world.value("n2") == "33"
    assert world.value("n1") == "10"


def test_a_key_that_moves_between_our_look_and_the_agents_write_is_not_written(world):
    """The row still has the before-value: only the agent's compare-and-set can see it."""
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.sim.drift("n2", "vm.swappiness", "33")

    world.run(rollout, seconds=60)

    step = rollout.steps.get(node_name="n2")
    assert step.status == "held"
    assert world.value("n2") == "33"


def test_a_freeze_keeps_steps_from_starting_and_lets_running_ones_finish(world):
    rollout = world.started(world.plan(canary=1, batch="1"))
    world.until(rollout, "succeeded")
    freeze = freezes.freeze(cluster=world.cluster, reason="Black Friday", by=world.operator)

    for _ in range(10):
        world.slice(rollout)
        world.tick(2)
    done = rollout.steps.filter(status="succeeded").count()
    assert done < 3
    assert "Black Friday" in rollout.waiting_for

    freezes.lift(freeze, by=world.operator)
    world.run(rollout)
    assert rollout.status == "succeeded"


def test_a_plan_that_nobody_approved_cannot_start(world):
    with pytest.raises(WrongState, match="not approved"):
        rollout_actions.start(world.plan(), by=world.operator)


def test_an_approver_who_lost_the_role_does_not_count_any_more(world):
    plan = world.approved()
    world.approver.bindings.all().delete()

    with pytest.raises(WrongState, match="approval"):
        rollout_actions.start(plan, by=world.operator)


def test_one_plan_starts_once(world):
    plan = world.approved()
    rollout_actions.start(plan, by=world.operator)

    with pytest.raises(WrongState, match="started"):
        rollout_actions.start(plan, by=world.operator)


# ── law 3: stop ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_failure_stops_new_starts(make_world):
    world = make_world(nodes=4)
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1")
    rollout = world.run(world.started(world.plan(canary=1, batch="1")))

    assert rollout.status == "stopped"
    assert rollout.steps.get(node_name="n1").status == "failed"
    assert rollout.steps.filter(status="queued").count() == 3
    assert world.value("n2") == "60"


@pytest.mark.parametrize(("allowed", "reached"), [(1, 1), (2, 2)])
def test_failures_above_the_allowed_number_stop_at_any_progress(make_world, allowed, reached):
    world = make_world(nodes=6)
    for name in ("n4", "n5", "n6"):
        world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name=name)

    rollout = world.run(world.started(world.plan(canary=0, batch="1", order="name", max_failures=allowed)))

    assert rollout.status == "stopped"
    assert rollout.steps.filter(status="failed").count() == allowed + 1
    assert rollout.steps.filter(status="succeeded").count() == 3


def test_in_flight_steps_finish_when_the_rollout_stops(make_world):
    world = make_world(nodes=3)
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1")
    rollout = world.run(world.started(world.plan(canary=0, batch="3", order="name")))

    assert rollout.status in ("stopped", "failed")
    assert {s.status for s in rollout.steps.exclude(node_name="n1")} == {"succeeded"}


def test_the_ledger_keeps_its_count_when_a_step_is_taken_up_again(make_world):
    world = make_world(nodes=2)
    world.sim.nodes.machine("n1").dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=1, batch="1", order="name", reboot_deadline_seconds=60)
    rollout = world.run(world.started(plan), seconds=2000, step=10)

    assert rollout.status == "stopped"
    assert rollout.steps.get(node_name="n1").status == "failed"
    assert Slot.objects.get().node.name == "n1", "a node that was disturbed keeps its place"
    assert Step.objects.get(node_name="n2").status == "queued"


def test_approvers_needed_are_named_by_rule(make_world):
    world = make_world(nodes=1, environment="production")
    live = world.plan()
    assert verdicts.strictest_requirement(live).approvers == 1
    reboot = world.plan(world.revision(REBOOT))
    rule = verdicts.strictest_requirement(reboot)
    assert (rule.name, rule.approvers) == ("production, disruptive", 2)
