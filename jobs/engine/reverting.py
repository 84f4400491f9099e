"""Rollouts off their normal course: stopping at failures, aborting, reverting, and expiry of undecided steps."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import transaction

from common.clock import now
from jobs.diffs import dependency_graph
from jobs.diffs.dependency_graph import StepOrder
from jobs.engine.batches import count_failures
from jobs.engine.commit import change_status, deadline_for
from jobs.engine.event_log import count_sentence, log
from jobs.engine.step_counts import StepTally
from jobs.forecast.strategy import Strategy
from jobs.models import Rollout, Slot, Step

RS = Rollout.Status
Status = Step.Status

RESTED = ["status", "error", "version", "entered_at", "waiting_for", "not_before", "is_live", "stages", "deadline_at"]
"""What changes in a step that is taken out of the way; written by bulk_update."""


def carry_out_ending(rollout: Rollout, tally: StepTally) -> int:
    """Aborting and failing, carried out on steps: skip what is queued, revert what was asked to be reverted."""
    strategy = Strategy.from_json(rollout.plan.strategy)
    if rollout.status not in Rollout.LIVE:
        return 0
    if rollout.status == RS.ABORTING:
        with transaction.atomic():
            count = end_queued(rollout, Status.SKIPPED, "The rollout was aborted before this step started.")
            count += _revert_active(rollout, strategy) if rollout.abort_reverts else 0
            count += _give_up_unbegun(rollout)
            return count + _give_up_held(rollout, "The rollout was aborted while it was held.")
    nobody = f"No decision for {settings.SETPOINT_WAIT_HOURS} hours."
    if tally.is_overdue(Status.HELD, now()) and (late := _give_up_held(rollout, nobody, by=now())):
        return late
    if rollout.status == RS.RUNNING and (failed := count_failures(rollout, tally)) > strategy.max_failures:
        rollout.move(RS.STOPPED, waiting_for="", waiting_since=now())
        text = f"Stopped: {failed} failed, {strategy.max_failures} allowed. In-progress nodes finish."
        log(rollout, text, "bad")
        return 1
    if rollout.status == RS.RUNNING and (why := _why_stuck(rollout, strategy, tally)):
        rollout.move(RS.STOPPED, waiting_for="", waiting_since=now())
        log(rollout, f"Stopped: {why}.", "bad")
        return 1
    if rollout.status == RS.STOPPED and strategy.on_failure != "stop":
        return _after_failure(rollout, strategy)
    return 0


def _why_stuck(rollout: Rollout, strategy: Strategy, tally: StepTally) -> str:
    """Explain why nothing can move any more although a component waits, or is to be reverted; empty if something can.
    A component that failed stops only what requires it: the rollout stops once nothing else can move.
    """
    waiting = (Status.QUEUED,) if strategy.on_failure == "stop" else (Status.QUEUED, Status.FAILED)
    graph = dependency_graph.step_order(rollout) if tally.has_any(waiting) else None
    if graph is None:
        return ""
    if stuck := graph.stuck():
        _say_why(rollout, graph)
        return f"what is left waits for {stuck.on}"
    failed = graph.failed() if strategy.on_failure != "stop" else ""
    return f"{failed} failed" if failed else ""


def _say_why(rollout: Rollout, graph: StepOrder) -> None:
    """Store what each queued component waits for now: in a rollout that stops, it is not looked at again."""
    for step in rollout.steps.of_components().filter(status=Status.QUEUED):
        if waits := graph.wait(step):
            free = Step.objects.filter(pk=step.pk, version=step.version, status=Status.QUEUED)
            free.update(waiting_for=f"Waits for {waits.on}."[:500])


def _after_failure(rollout: Rollout, strategy: Strategy) -> int:
    """Do what the approved strategy says about failures: revert the failed nodes, or all of them."""
    steps = rollout.steps.filter(has_applied=True, direction=Step.Direction.FORWARD)
    if rollout.steps.filter(status__in=Step.ACTIVE).exists():
        return 0
    if strategy.on_failure == "revert-node":
        steps = steps.filter(status=Status.FAILED)
    else:
        steps = steps.filter(status__in=(Status.SUCCEEDED, Status.FAILED, Status.HELD))
    if not steps.exists():
        return 0
    with transaction.atomic():
        rollout.move(RS.REVERTING, waiting_for="", freeze_override="")
        chosen = list(steps.select_for_update())
        if strategy.on_failure == "revert-all":
            end_queued(rollout, Status.SKIPPED, "The rollout is being reverted.")
        queue_for_revert(chosen, strategy)
        log(rollout, f"Reverting {count_sentence(chosen)}, as the approved strategy requires.", "warn")
    return len(chosen)


def _give_up_held(rollout: Rollout, why: str, *, by: datetime | None = None) -> int:
    """End held steps, or with `by` those whose deadline is over by then: they got no decision (law 4).
    A disturbed node stays a failure, with cordon and slot (law 14); another is passed over when the rollout ends, and a
    failure while it continues.
    """
    held = rollout.steps.filter(status=Status.HELD)
    if by is not None:
        held = held.filter(deadline_at__lt=by)
    if not held.exists():
        return 0
    with transaction.atomic():
        rows = list(held.select_for_update())
        for step in rows:
            to = Status.SKIPPED if by is None and not step.is_touched else Status.FAILED
            end_step(step, to, f"{why} It was held: {step.error}"[:1000])
        Step.objects.bulk_update(rows, [*RESTED, "ending"], batch_size=100)
    for step in rows:
        log(rollout, f"{step.ending or step.status}: {why}", "warn", step)
    return len(rows)


def _give_up_unbegun(rollout: Rollout) -> int:
    """Components and policy objects that wait for a worker: nothing was done, so an abort passes them over."""
    waiting = rollout.steps.of_components().filter(
        status=Status.APPLYING, granted_at=None, claim="", direction=Step.Direction.FORWARD
    )
    rows = list(waiting.select_for_update())
    for step in rows:
        end = Status.FAILED if step.is_touched else Status.SKIPPED
        why = f"The rollout was aborted before {'they were applied' if step.is_policies else 'helm began'}."
        change_status(step, end, error=why, version=step.version + 1, deadline_at=None)
    Step.objects.bulk_update(rows, RESTED, batch_size=100)
    return len(rows)


def has_our_cordon(step: Step) -> bool:
    return step.is_disrupted or step.is_ours_to_uncordon


def _revert_active(rollout: Rollout, strategy: Strategy) -> int:
    """Turn steps round that have written; those inside a granted restart finish it first.

    Those that have not are given back: nothing more of them is evicted.
    """
    with transaction.atomic():
        rows = list(
            rollout.steps.select_for_update().filter(
                status__in=(*Step.ACTIVE, Status.HELD), direction=Step.Direction.FORWARD, claim="", ending=""
            )
        )
        chosen = [s for s in rows if s.has_applied and not (s.status == Status.RESTARTING and s.granted_at)]
        queue_for_revert(chosen, strategy)
        early = [s for s in rows if not s.has_applied and s.status in (Status.CORDONING, Status.DRAINING)]
        for step in early:
            change_status(step, Status.RETURNING, ending=Status.SKIPPED, version=step.version + 1)
            step.deadline_at = deadline_for(step, strategy)
        Step.objects.bulk_update(early, [*RESTED, "ending"], batch_size=100)
    return len(chosen) + len(early)


def queue_for_revert(steps: list[Step], strategy: Strategy) -> None:
    """Back to the queue, in the other direction, as a new attempt. Slots and cordons stay as they are."""
    for step in steps:
        change_status(
            step,
            Status.QUEUED,
            direction=Step.Direction.REVERT,
            attempt=step.attempt + 1,
            version=step.version + 1,
            error="",
            failed_in="",
            generation=0,
            granted_at=None,
            ending="",
            boot_id="",
            stages={},
            recordoned=0,
            expects={},
        )
        step.deadline_at = deadline_for(step, strategy)
    Step.objects.bulk_update(
        steps,
        ["status", "direction", "attempt", "version", "error", "failed_in", "generation", "granted_at",
         "ending", "boot_id", "stages", "recordoned", "expects", "entered_at", "waiting_for", "not_before", "is_live",
         "deadline_at"],
        batch_size=100,
    )  # fmt: skip


def end_step(step: Step, to: str, why: str) -> None:
    """End a step, in memory.
    A node that was asked anything is given back by its stage, which withdraws that first (law 14).
    """
    if to == Status.SKIPPED and step.has_applied and not step.is_component:
        change_status(step, Status.RETURNING, ending=to, error=why, version=step.version + 1)
        step.deadline_at = deadline_for(step, Strategy.from_json(step.rollout.plan.strategy))
        return
    change_status(step, to, error=why, version=step.version + 1, deadline_at=None)


def end_queued(rollout: Rollout, to: str, why: str) -> int:
    """Queued steps end without having begun."""
    with transaction.atomic():
        # Claimed ones as well: its worker has written nothing yet, and its version keeps it from committing.
        rows = list(rollout.steps.select_for_update().filter(status=Status.QUEUED, direction=Step.Direction.FORWARD))
        for step in rows:
            # One that waits to be tried again has a disturbed node: it stays a failure, with cordon and slot (law 14).
            end_step(step, Status.FAILED if step.is_touched else to, why)
        Step.objects.bulk_update(rows, [*RESTED, "ending"], batch_size=100)
        Slot.objects.filter(step__in=[s for s in rows if not s.is_touched]).delete()
    return len(rows)
