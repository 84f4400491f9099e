"""Gates by signals: the next batch waits for a check of the GPUs, and for an operator if something is wrong."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from audit.models import Record
from common.clock import now
from jobs.forecast.strategy import parse
from jobs.models import Signal
from jobs.rollouts import engine_signals, rollout_actions

GATED = {"canary": 1, "batch": "100%", "gate_xids": True, "gate_minutes": 20}


@pytest.fixture
def gated(make_world):
    """The canary is done, and its GPUs were watched long enough."""
    world = make_world(nodes=3)
    rollout = world.started(world.plan(**GATED))
    world.run(rollout, seconds=60)
    assert rollout.waiting_for.startswith("Watches the GPUs after batch 1 until ")
    world.clock.forward(21 * 60)
    world.look()
    world.slice(rollout)
    return world, rollout


def done(rollout):
    return rollout.steps.filter(status="succeeded").count()


def say(rollout, kind, reason=""):
    engine_signals.send_signal(rollout, kind, value={}, reason=reason, expires_at=now() + timedelta(hours=1))


def test_a_gate_that_nobody_looked_through_is_shut(gated):
    world, rollout = gated
    assert done(rollout) == 1
    assert re.search("readings.*gate stays closed", rollout.waiting_for)
    say(rollout, engine_signals.LOOK)
    world.run(rollout, seconds=60)
    assert (rollout.status, done(rollout)) == ("succeeded", 3)


def test_a_look_from_before_the_time_was_over_opens_nothing(make_world):
    world = make_world(nodes=2)
    rollout = world.started(world.plan(**GATED))
    world.run(rollout, seconds=60)
    say(rollout, engine_signals.LOOK)
    world.clock.forward(21 * 60)
    world.look()
    world.slice(rollout)
    assert done(rollout) == 1


def test_a_gate_holds_the_next_batch_and_says_why(gated):
    world, rollout = gated
    say(rollout, engine_signals.LOOK)
    say(rollout, engine_signals.GATE, "New since it began: XID 79 on n1, GPU 0.")
    world.run(rollout, seconds=30)
    assert done(rollout) == 1
    assert rollout.waiting_for == "A gate holds the next batch: New since it began: XID 79 on n1, GPU 0."
    assert rollout.events.filter(text__contains="XID 79").count() == 1
    engine_signals.withdraw_signal(rollout, engine_signals.GATE)
    world.run(rollout, seconds=60)
    assert (rollout.status, done(rollout)) == ("succeeded", 3)


@pytest.mark.parametrize("has_gate", [True, False])
def test_a_person_has_it_go_on_and_the_reason_is_recorded(gated, has_gate):
    world, rollout = gated
    if has_gate:
        say(rollout, engine_signals.GATE, "New since it began: XID 79 on n1, GPU 0.")
    world.slice(rollout)
    rollout_actions.go_on(rollout, by=world.operator)
    assert not Signal.objects.filter(kind=engine_signals.GATE).exists()
    world.run(rollout, seconds=60)
    assert (rollout.status, done(rollout)) == ("succeeded", 3)
    held_by = Record.objects.get(action="rollout.go-on").after["held_by"]
    assert ("XID 79" if has_gate else "readings") in held_by


def test_without_a_gate_in_its_strategy_nothing_waits(make_world):
    world = make_world(nodes=2)
    rollout = world.run(world.started(world.plan(canary=1)), seconds=60)
    assert rollout.status == "succeeded"


def test_a_plan_says_what_stops_it():
    strategy = parse({"gate_xids": True, "gate_fall_percent": 10, "gate_throttled_points": 5})
    assert strategy.gates == "new XIDs or 5 % of the time or more newly throttled or a fall of 10 % or more"
    assert not parse({}).is_gated
