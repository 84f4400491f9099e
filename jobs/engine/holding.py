"""What holds a batch back although everything before it is done: a gate, and the control of the order `measured`."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max, Min

from common.clock import now
from jobs import forecast
from jobs.engine.saying import clock_time
from jobs.models import Rollout, Signal, Step
from jobs.strategy import MEASURED, Strategy

Status = Step.Status


def reason(rollout: Rollout, strategy: Strategy) -> str:
    """What a person may have it go on in spite of: a gate, or the control's time. Empty: nothing holds it."""
    if rollout.status != Rollout.Status.RUNNING:
        return ""
    if gate := standing_gate(rollout):
        return gate.reason
    if strategy.order != MEASURED:
        return ""
    steps = rollout.steps.of_nodes()
    batch = steps.filter(status=Status.QUEUED).aggregate(first=Min("batch"))["first"]
    if batch is None or steps.filter(batch__lt=batch, status__in=Step.ACTIVE).exists():
        return ""
    return control(rollout, batch, strategy)


def standing_gate(rollout: Rollout) -> Signal | None:
    return Signal.objects.filter(kind="gate", scope=f"rollout:{rollout.pk}", expires_at__gt=now()).first()


def control(rollout: Rollout, batch: int, strategy: Strategy) -> str:
    """Why this batch, which is of the control, does not open yet; empty: it may, or it is no control's."""
    if strategy.order != MEASURED:
        return ""
    held = rollout.steps.of_nodes().filter(status=Status.QUEUED, plan_node__is_control=True)
    if not held.filter(batch=batch).exists() or (until := control_until(rollout, strategy)) is None:
        return ""
    count = held.count()
    nodes = f"{count} node{'s' if count != 1 else ''}"
    return f"The control ({nodes}) is held back until {clock_time(until)}, while what the change did is measured."


def control_until(rollout: Rollout, strategy: Strategy) -> datetime | None:
    """When the control may be carried out; None: now, for the time is over, a person said so, or nobody was changed."""
    if strategy.order != MEASURED:
        return None
    changed = rollout.steps.of_nodes().filter(plan_node__is_control=False, node__is_control_plane=False)
    last = changed.filter(status=Status.SUCCEEDED).aggregate(last=Max("entered_at"))["last"]
    if last is None or (rollout.went_on_at and rollout.went_on_at >= last):
        return None
    until: datetime = last + timedelta(seconds=forecast.held_back_seconds(strategy))
    return until if until > now() else None
