"""Windows of a rollout's target, and holds of its change record and of its fleet run, as they decide about starts (laws
15 and 2).

Evaluated as of now, never frozen into a plan: a window only restricts, so no change of it widens what was approved.
What has been disturbed is finished or put back at any time, because a node that is left half done is worse
than one that is worked on late. Freezes of the calendar count as freezes do, see `jobs.engine.preconditions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db.models import Q

from common.clock import now
from common.templatetags.setpoint import duration
from jobs.approvals import glass, rings
from jobs.approvals.tickets import obstacles
from jobs.calendars import targets
from jobs.calendars.open_times import WINDOW, CalendarEntry, Opening, opening_at
from jobs.diffs.changes import Disruption
from jobs.engine.outcome import StepOutcome, StepView, wait
from jobs.forecast import estimates, window_fit
from jobs.models import Rollout, Step

LOOKS_AGAIN_SECONDS = 30.0
"""A step that does not fit is looked at so often: the window may be made longer, and others may have their turn."""


def calendar(rollout: Rollout) -> list[CalendarEntry]:
    """Read the rules that hold the rollout: those of its target, without windows while its break-glass counts."""
    entries = targets.entries_of(rollout.cluster, rollout.plan.pool_id)
    if glass.is_in_force(rollout):
        return [entry for entry in entries if entry.kind != WINDOW]
    return entries


def closed_reason(rollout: Rollout, opening: Opening) -> str:
    """Explain, in a sentence, why no step of the target starts now; empty: the window is open, or some step may
    start all the same.
    """
    stopped = stop_reason(rollout)
    if opening.is_open and not stopped:
        return ""
    unbound = rollout.steps.filter(_unbound(), status=Step.Status.QUEUED)
    return "" if unbound.exists() else stopped or targets.closed_sentence(opening)


def stop_reason(rollout: Rollout) -> str:
    """Explain, in a sentence, what holds the rollout at any hour: change record or fleet run; empty: neither."""
    return obstacles.stop_reason(rollout.plan) or rings.hold_reason(rollout.plan)


def is_bound(step: Step) -> bool:
    """Return whether windows apply to a step: not to one on its way back, nor to one that has disturbed something."""
    return step.direction == Step.Direction.FORWARD and not step.is_disrupted


def _unbound() -> Q:
    return Q(direction=Step.Direction.REVERT) | Q(is_disrupted=True)


class StartGate:
    """Judges starts of steps of one rollout, as of the moment when it is made. One query, and two for each class of
    change where a window is open that closes."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout, self._entries = rollout, calendar(rollout)
        self.opening = opening_at(self._entries, now())
        self.stopped = stop_reason(rollout)
        """Why the ticket system, or its fleet run, holds the rollout; empty: neither does."""
        self._needed: dict[str, float] = {}

    def refusal(self, step: Step) -> str:
        """Explain, in a sentence, why this step must not start now; empty when it may."""
        if not is_bound(step):
            return ""
        if self.stopped:
            return self.stopped
        if not self.opening.is_open:
            return targets.closed_sentence(self.opening)
        if self.opening.closes_at is None:
            return ""
        left = self.opening.closes_at - now()
        needed = timedelta(seconds=self.needed_seconds(step))
        if needed <= left:
            return ""
        lack = f"{duration(needed)} needed, {duration(left)} left"
        if later := window_fit.next_long_enough(self._entries, needed, self.opening.closes_at):
            return f"{targets.closed_sentence(Opening(is_open=False, upcoming=later)).removesuffix('.')}: {lack}."
        kind = "window" if any(entry.kind == WINDOW for entry in self._entries) else "time between freezes"
        return f"No {kind} within {window_fit.HORIZON.days} days is long enough: {lack}. Make one longer."

    def needed_seconds(self, step: Step) -> float:
        """Return the seconds that must be left in the window: as planned, or as such steps take by now if that is more.

        An upper quantile, not the median: half of all steps take longer than that.
        """
        summary = self._rollout.plan.summary
        if step.kind != Step.Kind.NODE:
            return window_fit.part_needed(summary, step.component, step.kind)
        if step.worst_class not in self._needed:
            worst = Disruption(step.worst_class)
            estimate = estimates.estimate_durations(self._rollout.cluster_id, [worst])
            known = 0.0 if worst in estimate.guessed else estimate.needed[worst]
            self._needed[step.worst_class] = max(known, estimates.planned_needed(summary, step.worst_class))
        return self._needed[step.worst_class]

    def held_back(self, views: Iterable[tuple[StepView, StepOutcome]]) -> list[tuple[StepView, StepOutcome]]:
        """Turn each start that the windows refuse into waiting."""
        out = []
        for view, outcome in views:
            starts = outcome.to in (Step.Status.ADMITTED, Step.Status.APPLYING)
            refusal = self.refusal(view.step) if starts else ""
            held = wait(refusal, again_in=LOOKS_AGAIN_SECONDS, is_patient=True)
            out.append((view, held if refusal else outcome))
        return out
