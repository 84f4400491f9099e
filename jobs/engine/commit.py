"""The only writer of a step's status. A set of outcomes is one transaction, and a step whose claim was lost is left
out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from common.clock import now
from common.errors import IllegalMove
from compliance.services import expectations
from jobs.engine.outcome import StepOutcome
from jobs.forecast import blast_radius
from jobs.forecast.strategy import Strategy
from jobs.models import Slot, Step, StepEvent

Status = Step.Status

ON_MOVE = ("status", "entered_at", "deadline_at", "waiting_for", "not_before", "stages", "is_live")
ALWAYS = ("version", "claim", "lease_until", "waiting_for", "not_before")


HELM_QUEUE_SECONDS = 3600.0
"""How long a component may wait for a worker to run helm. A judgment: others' installs take minutes each; an hour
without a free worker means that there is none."""
OF_COMPONENTS: Mapping[Status, Callable[[Strategy], float]] = {
    Status.APPLYING: lambda strategy: HELM_QUEUE_SECONDS,  # once a worker has begun, claims.begin_helm shortens it
    Status.VERIFYING: lambda strategy: strategy.component_deadline_seconds or settings.SETPOINT_READY_SECONDS,
}


def change_status(step: Step, to: str, **fields: Any) -> None:
    """Change a step's status in memory, by the table. Raises IllegalMove."""
    if to not in Step.NEXT.get(step.status, set()):
        raise IllegalMove(f"step {step.pk}: {step.status} -> {to}")
    at = now()
    spent = (at - step.entered_at).total_seconds()
    step.stages = step.stages | {step.status: round(step.stages.get(step.status, 0) + spent, 1)}
    step.status, step.entered_at = to, at
    step.waiting_for, step.not_before = "", None
    step.is_live = to not in Step.RESTING
    for name, value in fields.items():
        setattr(step, name, value)


def deadline_for(step: Step, strategy: Strategy) -> Any:
    """Return when this state has lasted too long (law 4); None for resting states."""
    if step.status in Step.RESTING:
        return None
    if step.is_component and step.status in OF_COMPONENTS:
        seconds = OF_COMPONENTS[Status(step.status)](strategy)
        if step.status == Status.APPLYING and step.granted_at is not None:
            seconds = apply_seconds(step, strategy)
        if step.status == Status.VERIFYING and step.plan_component is not None:
            seconds += blast_radius.seconds_at_work(step.plan_component)
        return now() + timedelta(seconds=seconds)
    seconds = {
        Status.DRAINING: strategy.drain_timeout_seconds,
        Status.SOAKING: strategy.soak_seconds + strategy.step_deadline_seconds,
        Status.HELD: settings.SETPOINT_WAIT_HOURS * 3600,
        Status.QUEUED: settings.SETPOINT_WAIT_HOURS * 3600,
    }.get(Status(step.status), strategy.step_deadline_seconds)
    if step.status == Status.RESTARTING and step.worst_class == "reboot":
        seconds = strategy.reboot_deadline_seconds
    return now() + timedelta(seconds=seconds)


def helm_seconds(strategy: Strategy) -> float:
    """Return the time limit of one attempt in seconds, from the moment a worker has begun."""
    most = float(settings.SETPOINT_HELM_SECONDS)
    return min(most, strategy.component_deadline_seconds) if strategy.component_deadline_seconds else most


def apply_seconds(step: Step, strategy: Strategy) -> float:
    """Return how long a worker may try, in seconds, from the moment the first one has begun.

    What the component takes the place of goes only once it is ready: that time counts here already.
    """
    planned = step.plan_component
    if planned is None or not planned.prepared.get("replaced"):
        return helm_seconds(strategy)
    ready = OF_COMPONENTS[Status.VERIFYING](strategy) + blast_radius.seconds_at_work(planned)
    return helm_seconds(strategy) + ready


def commit(
    claim: str,
    outcomes: Sequence[tuple[Step, StepOutcome]],
    *,
    strategy: Strategy,
    preparing: Iterable[expectations.Expected] = (),
    restored: Mapping[int, Sequence[str]] | None = None,
) -> int:
    """Write outcomes of a claimed set; returns how many moved.

    `preparing` are targets of nodes that begin to apply, `restored` the keys per node that are back at their originals.
    """
    # One that waits for what it waited for is left out: giving the claim back says enough.
    by_pk = {step.pk: (step, outcome) for step, outcome in outcomes if is_news(step, outcome)}
    if not by_pk:
        return 0
    with transaction.atomic(savepoint=False):
        claimed = Step.objects.select_for_update().filter(pk__in=list(by_pk), claim=claim)
        still = dict(claimed.values_list("pk", "version"))
        rows: list[Step] = []
        events: list[StepEvent] = []
        count = 0
        changed = set(ALWAYS)
        freed: list[UUID] = []
        for pk, (step, outcome) in by_pk.items():
            if still.get(pk) != step.version:
                continue
            count += bool(outcome.to)
            changed.update(outcome.fields, ON_MOVE if outcome.to else ())
            _apply(step, outcome, strategy)
            rows.append(step)
            events += [
                StepEvent(rollout_id=step.rollout_id, step=step, level=level, text=text[:1000])
                for level, text in outcome.log
            ]
            if outcome.frees_slot and outcome.to:
                freed.append(step.pk)
        kept = {row.node_id for row in rows}
        targets = [t for t in preparing if t.node_id in kept]
        if targets and rows:
            expectations.expect(targets, rollout_id=rows[0].rollout_id)
        if over := {node: keys for node, keys in (restored or {}).items() if node in kept}:
            expectations.forget(over)
        if back := [row.node_id for row in rows if row.node_id and row.status == Status.REVERTED]:
            expectations.give_back(back, rollout_id=rows[0].rollout_id)
        if rows:
            # An upsert of rows locked above: bulk_update's CASE per row and column took two thirds of a slice.
            Step.objects.bulk_create(
                rows, batch_size=100, update_conflicts=True, unique_fields=["id"], update_fields=sorted(changed)
            )
        StepEvent.objects.bulk_create(events, batch_size=500)
        if freed:
            Slot.objects.filter(step_id__in=freed).delete()
    return count


def is_news(step: Step, outcome: StepOutcome) -> bool:
    """Return whether there is anything to write: the step does not just wait on for what it waited for."""
    if outcome.to or outcome.fields or outcome.log or outcome.again_in:
        return True
    return step.waiting_for != outcome.waits_for[:500] or step.not_before is not None


def _apply(step: Step, outcome: StepOutcome, strategy: Strategy) -> None:
    step.version += 1
    step.claim, step.lease_until = "", None
    if outcome.to:
        change_status(step, outcome.to, **outcome.fields)
        step.deadline_at = deadline_for(step, strategy)
        return
    for name, value in outcome.fields.items():
        setattr(step, name, value)
    step.waiting_for = outcome.waits_for[:500]
    step.not_before = now() + timedelta(seconds=outcome.again_in) if outcome.again_in else None
    if step.not_before and step.deadline_at and step.deadline_at < step.not_before:
        step.not_before = step.deadline_at  # a server may ask to wait for days; the deadline is looked at in time
