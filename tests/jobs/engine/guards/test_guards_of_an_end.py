"""Guards of how a step ends, each alone: where another backs it, the law's own test does not notice that it is gone."""

from __future__ import annotations

import pytest
from django.conf import settings

from jobs.engine import reconcile
from jobs.models import ChangeSet, Slot
from jobs.rollouts import rollout_actions
from tests.jobs.moments import is_cordoned, reach

REBOOT = {"cmdline.iommu": "pt"}
BOTH = {"vm.swappiness": "10", "cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


class Killed(BaseException):
    """Kill -9 in the middle of a step: no handler of the code under test may catch it."""


# ── law 9: identity ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_replaced_a_moment_ago_is_not_called_done(make_world):
    """No row says so yet: only the node itself does."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0))
    reach(world, rollout, "returning")
    world.sim.nodes.replace("n1")

    reconcile.advance(rollout.pk)

    step = rollout.steps.get()
    assert step.status == "failed"
    assert "another node under the same name" in step.error


# ── law 10: controls ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_putting_a_node_back_takes_no_other_of_its_batch_forwards(make_world):
    world = make_world(nodes=3)
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1")
    plan = world.plan(canary=0, batch="3", order="name", max_in_flight=2)
    rollout = world.run(world.started(plan))
    assert rollout.status == "stopped"

    rollout_actions.revert(rollout, by=world.operator, step=rollout.steps.get(node_name="n1"))
    world.run(rollout, seconds=60)

    assert rollout.steps.get(node_name="n3").status == "queued"
    assert world.value("n3") == "60"


# ── law 14: what failure leaves ───────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_failed_after_its_spec_was_written_stays_cordoned(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, step_deadline_seconds=60))
    reach(world, rollout, "applying")
    world.sim.agents.restart("n1", "hanging")

    world.until(rollout, "failed")

    assert is_cordoned(world)
    assert [slot.node.name for slot in Slot.objects.all()] == ["n1"]


def test_a_node_whose_eviction_nobody_noted_stays_cordoned(make_world, monkeypatch):
    """The worker is killed right after the eviction, and what is found later holds the step."""
    world = make_world(nodes=1)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=1, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    reach(world, rollout, "draining")
    real = world.fleet.evict

    def evict(pod):
        real(pod)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(world.fleet, "evict", evict)
        dying.setattr(reconcile.claims, "release", lambda token: None)
        with pytest.raises(Killed):
            world.until(rollout, "applying", seconds=10)
    world.sim.add_pod("bare", node="n1", namespace="team-x")
    world.tick(settings.SETPOINT_LEASE_SECONDS + 5)

    step = world.until(rollout, "held", seconds=60)

    assert "bare" in step.error
    assert is_cordoned(world)
    assert [slot.node.name for slot in Slot.objects.all()] == ["n1"]


def test_a_step_that_ends_before_its_cordon_returns_its_slot(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    reach(world, rollout, "admitted")
    row = ChangeSet.objects.get()
    row.content["items"][0]["expect"] = "of another party"
    ChangeSet.objects.filter(pk=row.pk).update(content=row.content)

    reconcile.advance(rollout.pk)

    assert rollout.steps.get().status == "held"
    assert not Slot.objects.exists()


def test_a_held_node_that_was_disturbed_keeps_cordon_and_slot_when_the_rollout_is_aborted(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(BOTH), canary=0))
    reach(world, rollout, "cordoning")
    world.sim.drift("n1", "vm.swappiness", "33")
    world.until(rollout, "held")
    rollout_actions.abort(rollout, by=world.operator)

    world.run(rollout, seconds=30)

    assert (rollout.status, rollout.steps.get().status) == ("cancelled", "failed")
    assert is_cordoned(world)
    assert [slot.node.name for slot in Slot.objects.all()] == ["n1"]


def test_a_disturbed_node_that_waits_to_be_tried_again_stays_a_failure_when_the_rollout_is_aborted(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, step_deadline_seconds=60))
    reach(world, rollout, "applying")
    world.sim.agents.restart("n1", "hanging")
    world.until(rollout, "failed")
    rollout_actions.retry_failed(rollout, by=world.operator)
    rollout_actions.abort(rollout, by=world.operator)

    world.run(rollout, seconds=30)

    assert (rollout.status, rollout.steps.get().status) == ("cancelled", "failed")
    assert is_cordoned(world)
    assert [slot.node.name for slot in Slot.objects.all()] == ["n1"]
