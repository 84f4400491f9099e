"""Obstacles to a batch although everything before it is done: a gate, and the control group of the order `measured`."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max, Min

from common.clock import now
from jobs.engine.event_log import clock_time
from jobs.forecast import schedule
from jobs.forecast.strategy import MEASURED, Strategy
from jobs.models import Rollout, Signal, Step

Status = Step.Status


def overridable_obstacle(rollout: Rollout, strategy: Strategy) -> str:
    """Return the obstacle that an operator may override: a gate, or the control's time; empty: there is none."""
    if rollout.status != Rollout.Status.RUNNING:
        return ""
    if gate := holding_gate(rollout):
        return gate.reason
    if strategy.order != MEASURED and not strategy.is_gated:
        return ""
    steps = rollout.steps.of_nodes()
    batch = steps.filter(status=Status.QUEUED).aggregate(first=Min("batch"))["first"]
    if batch is None or steps.filter(batch__lt=batch, status__in=Step.ACTIVE).exists():
        return ""
    return batch_waits(rollout, batch, strategy)


def batch_waits(rollout: Rollout, batch: int, strategy: Strategy) -> str:
    """Return why a batch does not open although everything before it rests; empty: it may."""
    return control_wait(rollout, batch, strategy) or evaluate_gate(rollout, batch, strategy)


def evaluate_gate(rollout: Rollout, batch: int, strategy: Strategy) -> str:
    """A gate that was not evaluated is shut: unknown is not treated as healthy.

    `jobs.models.Signal` of kind `look` reports that look, once the GPUs were watched long enough.
    """
    if not strategy.is_gated:
        return ""
    steps = rollout.steps.of_nodes().filter(batch__lt=batch, status=Status.SUCCEEDED)
    last = steps.aggregate(last=Max("entered_at"))["last"]
    if last is None or (rollout.went_on_at and rollout.went_on_at >= last):
        return ""
    due: datetime = last + timedelta(minutes=strategy.gate_minutes)
    if due > now():
        return f"Watches the GPUs after batch {batch - 1} until {clock_time(due)}, then batch {batch}."
    seen = Signal.objects.filter(kind="look", scope=f"rollout:{rollout.pk}", created_at__gte=due)
    if seen.exists():
        return ""
    return f"Waiting for GPU readings up to {clock_time(due)}; without them the gate stays closed."


def holding_gate(rollout: Rollout) -> Signal | None:
    """Return the newest gate that holds the rollout; one from before a manual override is over."""
    gates = Signal.objects.filter(kind="gate", scope=f"rollout:{rollout.pk}", expires_at__gt=now())
    return (gates.filter(created_at__gt=rollout.went_on_at) if rollout.went_on_at else gates).first()


def control_wait(rollout: Rollout, batch: int, strategy: Strategy) -> str:
    """Return why this batch, which is of the control, does not open yet; empty: it may, or it is not of the control."""
    if strategy.order != MEASURED:
        return ""
    queued = rollout.steps.of_nodes().filter(status=Status.QUEUED, plan_node__is_control=True)
    if not queued.filter(batch=batch).exists() or (until := control_until(rollout, strategy)) is None:
        return ""
    count = queued.count()
    nodes = f"{count} node{'s' if count != 1 else ''}"
    return f"The control ({nodes}) is held back until {clock_time(until)}, while the effect of the change is measured."


def control_until(rollout: Rollout, strategy: Strategy) -> datetime | None:
    """Return when the control may be carried out; None: now (time over, overridden, or no node was changed)."""
    if strategy.order != MEASURED:
        return None
    changed = rollout.steps.of_nodes().filter(plan_node__is_control=False, node__is_control_plane=False)
    last = changed.filter(status=Status.SUCCEEDED).aggregate(last=Max("entered_at"))["last"]
    if last is None or (rollout.went_on_at and rollout.went_on_at >= last):
        return None
    until: datetime = last + timedelta(seconds=schedule.held_back_seconds(strategy))
    return until if until > now() else None
