"""Skip and retry under attack, and rollouts without a decision by anyone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from common.clock import now
from common.errors import WrongState
from jobs.engine import progress, reconcile
from jobs.models import Rollout, Slot, Step
from jobs.rollouts import rollout_actions
from tests.jobs.engine.adversary.test_adversary_controls import died_at_reboot, statuses

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


# ── skip and retry ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_skipping_a_node_that_waits_to_be_tried_again_gives_it_back(make_world):
    """Between retry and its turn it is queued, but its cordon and slot are still there."""
    world = make_world(nodes=2)
    rollout = died_at_reboot(world)
    rollout_actions.retry_failed(rollout, by=world.operator)
    rollout_actions.pause(rollout, by=world.operator)
    step = rollout.steps.get(node_name="n1")
    assert (step.status, Slot.objects.get().step_id) == ("queued", step.pk)

    rollout_actions.skip(rollout, step, by=world.operator)
    world.run(rollout, seconds=120)

    assert statuses(rollout)["n1"] == "skipped"
    assert not world.sim.node("n1")["spec"].get("unschedulable")
    assert not Slot.objects.exists()


def test_a_queued_node_can_be_skipped_whatever_a_dead_worker_left_there(world):
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    rollout_actions.pause(rollout, by=world.operator)
    Step.objects.filter(node_name="n3").update(claim="dead", lease_until=now() - timedelta(seconds=5))

    rollout_actions.skip(rollout, rollout.steps.get(node_name="n3"), by=world.operator)
    assert statuses(rollout)["n3"] == "skipped"


def test_skipping_a_node_that_another_rollout_works_on_is_refused_in_words(make_world):
    world = make_world(nodes=2)
    rollout = died_at_reboot(world)
    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout)
    world.sim.nodes.machine("n1").dies_at_reboot = False
    world.sim.nodes.machine("n1").power_on()
    world.tick(300)
    other = world.started(world.plan(world.revision(HUGE), canary=0, batch="2", include_unavailable=True))
    assert other.steps.filter(node_name="n1").exists()

    with pytest.raises(WrongState, match=f"R-{other.number}"):
        rollout_actions.skip(rollout, rollout.steps.get(node_name="n1"), by=world.operator)


def test_a_retry_is_not_lost_to_a_worker_that_is_just_ending_the_rollout(world, monkeypatch):
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n3", times=1)
    rollout = world.started(world.plan(canary=0, batch="3", order="name", max_failures=1))
    real = progress._finish
    pressed = []

    def finish(row, counts, tally):
        if not pressed:
            pressed.append(1)
            rollout_actions.retry_failed(Rollout.objects.get(pk=row.pk), by=world.operator)
        return real(row, counts, tally)

    monkeypatch.setattr(progress, "_finish", finish)
    world.run(rollout, seconds=120)

    assert pressed
    assert rollout.status == "succeeded"
    assert statuses(rollout)["n3"] == "succeeded"


def test_a_pause_that_was_confirmed_starts_no_node_any_more(world, monkeypatch):
    """The pause arrives while a worker has looked at the queue and has not committed yet."""
    rollout = world.started(world.plan(canary=0, batch="3"))
    real = reconcile._decide
    pressed = []

    def decide(views):
        out = real(views)
        if views and views[0].step.status == "queued" and not pressed:
            pressed.append(1)
            rollout_actions.pause(Rollout.objects.get(pk=rollout.pk), by=world.operator)
        return out

    monkeypatch.setattr(reconcile, "_decide", decide)
    world.run(rollout, seconds=20)

    assert pressed
    assert set(statuses(rollout).values()) == {"queued"}
    assert rollout.status == "paused"


# ── no operator comes ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_held_node_that_nobody_cares_for_becomes_a_failure(world):
    rollout = world.started(world.plan(canary=0, batch="3", order="name"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.tick(10)
    world.run(rollout, seconds=20)
    assert statuses(rollout)["n2"] == "held"

    world.tick(settings.SETPOINT_WAIT_HOURS * 3600 + 60)
    world.slice(rollout)

    assert statuses(rollout)["n2"] == "failed"
    assert "No decision" in rollout.steps.get(node_name="n2").error


def test_a_paused_rollout_that_nobody_cares_for_aborts_itself(make_world):
    """Even though a queued node of it has something to say, too."""
    world = make_world(nodes=2)
    world.sim.nodes.cordon("n2")
    world.look()
    world.sim.nodes.cordon("n2", is_cordoned=False)
    world.look()
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="2", order="name"))
    world.sim.nodes.cordon("n2")
    world.look()
    rollout = rollout_actions.start(plan, by=world.operator)
    world.slice(rollout)
    assert rollout.steps.exclude(waiting_for="").exists()
    rollout_actions.pause(rollout, by=world.operator)
    for _ in range(3):
        world.slice(rollout)
        since = rollout.waiting_since
        world.tick(5)
    world.slice(rollout)
    assert rollout.waiting_since == since, "the sentence flips between two"

    world.tick(settings.SETPOINT_WAIT_HOURS * 3600 + 60)
    world.run(rollout, seconds=60)
    assert rollout.status == "cancelled"
