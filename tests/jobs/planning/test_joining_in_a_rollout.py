"""Nodes that join while a rollout runs whose plan has the option for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compliance.models import NodeStanding
from jobs.models import PlanNode, StepEvent
from jobs.planning import digests, new_nodes
from jobs.rollouts import rollout_actions
from simfleet.machines.hardware import Hardware
from tests.jobs.conftest import World
from tests.jobs.joining import join, running

REBOOT = {"vm.swappiness": "10", "cmdline.iommu": "pt"}


def test_a_node_that_joins_while_the_rollout_runs_follows_in_a_last_batch(world: World):
    rollout = running(world)
    join(world, "n4")
    world.run(rollout)
    step = rollout.steps.get(node_name="n4")
    assert (rollout.status, step.status, step.batch, world.value("n4")) == ("succeeded", "succeeded", 4, "10")
    assert step.plan_node.batch == 0
    assert digests.is_as_approved(rollout.plan)
    assert NodeStanding.objects.get(node__name="n4").state == "compliant"


def test_without_the_option_it_stays_pending_and_is_drafted_for(world: World):
    rollout = running(world, include_joining=False)
    join(world, "n4")
    world.run(rollout)
    world.tick(60)
    assert (rollout.status, rollout.steps.filter(node_name="n4").exists()) == ("succeeded", False)
    assert world.value("n4") != "10"
    assert [set(p.nodes.values_list("name", flat=True)) for p in new_nodes.draft()] == [{"n4"}]


def test_a_node_that_needs_a_reboot_stays_pending_and_a_plan_is_drafted_for_it(world: World):
    """The nodes that were planned have the argument already; only the new one lacks it."""
    for name in ("n1", "n2", "n3"):
        world.sim.kernel(name).next_cmdline += " iommu=pt"
        world.sim.nodes.reboot(name)
    world.tick(2000)
    rollout = running(world, REBOOT)
    has_it = Hardware(gpus=8)
    world.sim.add_node("n5", hardware=replace(has_it, cmdline=f"{has_it.cmdline} iommu=pt"), labels={"pool": "train"})
    join(world, "n4")
    world.run(rollout, step=5)
    assert rollout.status == "succeeded", rollout.waiting_for
    assert list(rollout.steps.filter(plan_node__batch=0).values_list("node_name", flat=True)) == ["n5"]
    left = PlanNode.objects.get(plan=rollout.plan, name="n4")
    assert "needs more than a live write (reboot)" in left.left_out
    assert StepEvent.objects.filter(rollout=rollout, text__contains="It stays pending").count() == 1
    world.tick(60)
    (plan,) = new_nodes.draft()
    assert (plan.worst_class, list(plan.nodes.values_list("name", flat=True))) == ("reboot", ["n4"])


def test_a_node_that_was_replaced_under_its_name_joins(world: World):
    rollout = running(world, max_failures=1)
    world.sim.nodes.delete("n3")
    join(world, "n3")
    world.run(rollout)
    steps = {step.node_uid: step for step in rollout.steps.filter(node_name="n3")}
    fresh = steps.pop(world.node("n3").uid)
    assert (fresh.status, fresh.plan_node.batch, world.value("n3")) == ("succeeded", 0, "10")
    assert [s.status for s in steps.values()] == ["failed"]


def test_nodes_that_join_keep_to_the_failures_that_are_allowed(world: World):
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n4", times=1)
    rollout = running(world)
    join(world, "n4")
    world.run(rollout)
    assert rollout.status == "stopped"
    assert rollout.steps.get(node_name="n4").status == "failed"


def test_a_paused_rollout_takes_nobody_in(world: World):
    rollout = running(world)
    rollout_actions.pause(rollout, by=world.operator)
    join(world, "n4")
    world.slice(rollout)
    assert not rollout.steps.filter(node_name="n4").exists()
    rollout_actions.resume(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.steps.get(node_name="n4").status == "succeeded"


def test_a_node_of_another_pool_or_known_before_the_plan_is_not_taken_in(world: World):
    join(world, "old", pool="other")
    rollout = running(world)
    join(world, "stranger", pool="other")
    world.sim.api.patch(_person(), "nodes", "old", {"metadata": {"labels": {"pool": "train"}}})
    world.tick(5)
    world.run(rollout)
    assert set(rollout.steps.values_list("node_name", flat=True)) == {"n1", "n2", "n3"}
    assert rollout.status == "succeeded"


def _person() -> Any:
    from simfleet.controllers.nodes import person

    return person("alice@example.org")


def test_nodes_that_joined_are_put_back_with_the_others(world: World):
    rollout = running(world)
    before = world.value("n2")
    join(world, "n4")
    world.run(rollout)
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert (rollout.status, world.value("n4")) == ("reverted", before)
