"""Guards of a step's start, each alone: where another backs it, the law's own test does not notice that it is gone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from clusters.models import Cluster, NodeTuning, Pool
from common.clock import now
from common.errors import WrongState
from jobs.diffs import restore_check
from jobs.engine import reconcile
from jobs.forecast.strategy import parse
from jobs.models import Slot, Step
from jobs.planning import planner
from jobs.rollouts import freezes, rollout_actions

REBOOT = {"cmdline.iommu": "pt"}


def asked_nodes(world):
    """Nodes of which any setting was asked."""
    changes = [e for e in world.sim.audit if e.resource == "nodetunings" and e.verb == "patch"]
    return {e.name for e in changes if (e.request or {}).get("spec", {}).get("settings")}


# ── law 1: budget ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_broke_after_its_plan_is_repaired_in_its_own_place(world):
    """The node takes the only place of the budget itself, so its step needs no other one."""
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3", include_unavailable=True))
    world.sim.nodes.cordon("n2")
    world.look()

    world.slice(rollout)

    assert [slot.node.name for slot in Slot.objects.all()] == ["n2"]


def test_rollouts_of_different_pools_share_the_clusters_budget(make_world):
    """The budget also holds in the moment between a slot and its cordon, when no row says yet that the node is out."""
    world = make_world(nodes=1)
    world.sim.add_node("m1", labels={"pool": "other"})
    world.observe()
    other = Pool.objects.create(cluster=world.cluster, name="other", selector={"matchLabels": {"pool": "other"}})
    revision = world.revision(REBOOT)
    plan = planner.make(pool=other, revision=revision, strategy=parse({"canary": 0}), by=world.operator)
    first, second = world.started(world.plan(revision, canary=0)), world.started(plan)

    reconcile.advance(first.pk)
    reconcile.advance(second.pk)

    assert [slot.node.name for slot in Slot.objects.all()] == ["n1"]
    assert "1 by Setpoint of 1 allowed" in second.steps.get().waiting_for
    world.run(first, seconds=2000, step=10)
    world.run(second, seconds=2000, step=10)
    assert (first.status, second.status) == ("succeeded", "succeeded")
    assert world.sim.nodes.peak_unavailable() == 1


# ── law 2: what was approved ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_approved_plan_that_expired_does_not_start(world):
    plan = world.approved()
    world.tick(settings.SETPOINT_PLAN_EXPIRY_HOURS * 3600 + 60)

    with pytest.raises(WrongState, match="expired"):
        rollout_actions.start(plan, by=world.operator)


def test_nothing_at_all_is_asked_of_a_node_that_moved_since_its_plan(world):
    """The agent would hold it, too; but then its present spec would be gone."""
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.tick(10)

    world.run(rollout, seconds=60)

    assert rollout.steps.get(node_name="n2").status == "held"
    assert asked_nodes(world) == {"n1", "n3"}


def test_a_rollout_whose_time_comes_in_a_freeze_does_not_begin(world):
    rollout = rollout_actions.start(world.approved(), by=world.operator, at=now() + timedelta(hours=1))
    freezes.freeze(cluster=world.cluster, reason="Black Friday", by=world.operator)
    world.tick(3700)

    world.slice(rollout)

    assert rollout.status == "queued"
    assert "Black Friday" in rollout.waiting_for


# ── law 3: stop ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failure_that_another_worker_saw_meanwhile_starts_nothing_more(world, monkeypatch):
    """n3 is about to start when another worker says that n1 has failed."""
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(world.plan(canary=0, batch="3", order="name", max_in_flight=2))
    real = reconcile._decide

    def meanwhile(views):
        if [(v.step.node_name, v.step.status) for v in views] == [("n3", "queued")]:
            Step.objects.filter(node_name="n1").update(status="failed", is_live=False)
        return real(views)

    monkeypatch.setattr(reconcile, "_decide", meanwhile)
    world.run(rollout, seconds=60)

    assert rollout.steps.get(node_name="n2").status == "succeeded"
    assert rollout.steps.get(node_name="n3").status == "queued"
    assert rollout.status == "stopped"


def test_a_batch_opens_only_when_the_one_before_it_rests(world):
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(world.plan(canary=1, batch="2", order="name"))

    for _ in range(10):
        world.slice(rollout)
        world.tick(5)

    assert {s.node_name: s.status for s in rollout.steps.all()} == {"n1": "verifying", "n2": "queued", "n3": "queued"}
    assert asked_nodes(world) == {"n1"}


def test_a_batch_of_live_steps_soaks_before_the_next_one_opens(world):
    rollout = world.started(world.plan(canary=1, batch="2", order="name", soak_seconds=300))
    world.until(rollout, "succeeded")

    world.tick(200)
    world.slice(rollout)
    assert asked_nodes(world) == {"n1"}
    assert "Soaking after batch 1" in rollout.waiting_for

    world.tick(110)
    world.run(rollout)
    assert rollout.status == "succeeded"


# ── laws 5, 11 and 12: another party's cordon, a silent agent, another master ─────────────────────────────────────────


def test_a_node_that_somebody_cordoned_since_the_plan_is_waited_for(world):
    """A live change needs no place, and still is not made behind the back of a person working on the node."""
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.sim.nodes.cordon("n1")
    world.look()

    world.run(rollout, seconds=20)
    step = rollout.steps.get(node_name="n1")
    assert (step.status, step.waiting_for) == ("queued", "n1 is cordoned by another party.")
    assert world.value("n1") == "60"

    world.sim.nodes.cordon("n1", is_cordoned=False)
    world.run(rollout)
    assert rollout.status == "succeeded"


def test_a_node_whose_agent_fell_silent_since_the_plan_is_waited_for(world):
    plan = world.approved(world.plan(canary=0, batch="3"))
    world.sim.agents.kill("n1")
    world.tick(settings.SETPOINT_AGENT_SILENT_SECONDS + 120)

    rollout = rollout_actions.start(plan, by=world.operator)
    world.run(rollout, seconds=20)

    step = rollout.steps.get(node_name="n1")
    assert step.status == "queued"
    assert "silent since" in step.waiting_for
    assert asked_nodes(world) == {"n2", "n3"}


def test_nothing_starts_on_a_cluster_that_changed_hands_since_the_approval(world):
    plan = world.approved()
    Cluster.objects.update(ownership="foreign", ownership_mark="another")

    with pytest.raises(WrongState, match="another"):
        rollout_actions.start(plan, by=world.operator)


def test_an_object_newer_than_the_database_is_not_planned_over(world):
    NodeTuning.objects.filter(node__name="n2").update(spec_step="11111111-2222-4333-8444-555555555555")

    assert world.plan().nodes.get(name="n2").left_out == restore_check.LEFT_OUT
