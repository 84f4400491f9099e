"""Rows altered with a database shell, at every moment of a rollout: nothing of it runs (law 2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.models import Cluster
from jobs.engine import reconcile
from jobs.models import ChangeSet, Plan, PlanNode, Rollout, Slot, Step
from jobs.rollouts import rollout_actions
from tests.jobs.conftest import World

REBOOT = {"cmdline.iommu": "pt"}


def strategy(rollout: Rollout) -> None:
    plan = Plan.objects.get(pk=rollout.plan_id)
    Plan.objects.filter(pk=plan.pk).update(strategy=plan.strategy | {"delete_unmanaged_pods": True})


def selector(rollout: Rollout) -> None:
    Plan.objects.filter(pk=rollout.plan_id).update(selector={"matchLabels": {"pool": "other"}})


def budget(rollout: Rollout) -> None:
    plan = Plan.objects.get(pk=rollout.plan_id)
    Plan.objects.filter(pk=plan.pk).update(summary=plan.summary | {"budget": 50})


def node_row(rollout: Rollout) -> None:
    PlanNode.objects.filter(plan=rollout.plan_id).update(is_unavailable=True)


def other_changes(rollout: Rollout) -> None:
    other = ChangeSet.objects.create(pk="f" * 64, content={"items": [], "unsupported": []}, worst_class="live")
    PlanNode.objects.filter(plan=rollout.plan_id).update(change_set=other)


def change_set(rollout: Rollout) -> None:
    row = ChangeSet.objects.get()
    row.content["items"][0]["expect"] = "off"
    row.save()


def a_class_less(rollout: Rollout) -> None:
    Step.objects.filter(rollout=rollout).update(worst_class="live")


ALTERATIONS = [strategy, selector, budget, node_row, other_changes, change_set, a_class_less]


def reach(world: World, rollout: Rollout, status: str) -> None:
    for _ in range(200):
        if rollout.steps.get().status == status:
            return
        reconcile.advance(rollout.pk)
        world.tick(2)
    raise AssertionError(f"never {status}")


@pytest.mark.parametrize("alter", ALTERATIONS)
@pytest.mark.parametrize("status", ["queued", "cordoning", "applying"])
def test_nothing_of_an_altered_plan_is_written_whatever_stage_it_had_reached(
    make_world: Callable[..., World], status: str, alter: Callable[[Rollout], None]
) -> None:
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    if status == "queued":
        reconcile.progress.is_blocked(
            Rollout.objects.select_related("plan").get(pk=rollout.pk)
        )  # begun, nothing started
        rollout.refresh_from_db()
    reach(world, rollout, status)
    alter(rollout)
    world.run(rollout, seconds=60, step=5)

    step = rollout.steps.get()
    assert step.status in ("held", "queued"), step.status
    assert "approved" in (step.error or rollout.waiting_for)
    assert "cmdline.iommu" not in str(world.sim.tuning("n1")["spec"].get("settings"))
    assert not world.sim.node("n1")["spec"].get("unschedulable"), "nothing was disturbed, so the node is given back"
    assert not Slot.objects.exists()


def test_a_consent_added_while_the_drain_waits_evicts_nobody(make_world: Callable[..., World]) -> None:
    """The drain reads its consents from the plan on each look."""
    world = make_world(nodes=1)
    world.sim.pods.workload("Deployment", "vllm", namespace="chat", replicas=1, labels={"app": "vllm"})
    world.sim.pods.budget("vllm", namespace="chat", labels={"app": "vllm"}, minAvailable=1)
    world.tick(10)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    reach(world, rollout, "draining")
    world.sim.add_pod("bare", node="n1", namespace="team-x")
    strategy(rollout)
    world.run(rollout, seconds=60, step=5)

    assert world.sim.store.find("pods", "bare", "team-x")
    assert rollout.steps.get().status == "held"


def test_a_grant_is_not_given_for_an_altered_plan(make_world: Callable[..., World]) -> None:
    world = make_world(nodes=1)
    world.sim.agents.restart("n1", "slow")
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    reach(world, rollout, "restarting")
    boot = world.node("n1").boot_id
    selector(rollout)
    world.run(rollout, seconds=400, step=10)

    assert rollout.steps.get().status == "held"
    assert (world.node("n1").boot_id, rollout.steps.get().granted_at) == (boot, None)


@pytest.mark.parametrize("own", [0, 2], ids=["the cluster's", "its own"])
def test_a_budget_raised_after_the_approval_is_not_used(make_world: Callable[..., World], own: int) -> None:
    """The approvers saw one node out at a time."""
    world = make_world(nodes=4)
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="4", budget=own))
    Cluster.objects.update(budget=3)
    world.cluster.refresh_from_db()
    rollout = world.run(rollout_actions.start(plan, by=world.operator), seconds=4000, step=10)
    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.sim.nodes.peak_unavailable() == 1


def test_a_budget_lowered_after_the_approval_counts_at_once(make_world: Callable[..., World]) -> None:
    world = make_world(nodes=4)
    Cluster.objects.update(budget=3)
    world.cluster.refresh_from_db()
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="4"))
    Cluster.objects.update(budget=1)
    world.run(rollout_actions.start(plan, by=world.operator), seconds=4000, step=10)
    assert world.sim.nodes.peak_unavailable() == 1
