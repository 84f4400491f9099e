"""Remaining time of a rollout over the windows and freezes of its target: what is left is walked as a plan's forecast.

A node that is at work is finished at any hour; all others start only where the calendar lets them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from common.clock import now
from jobs.calendars.open_times import CalendarEntry
from jobs.calendars.targets import ActiveFreeze, local_moment
from jobs.diffs.changes import Disruption
from jobs.forecast import estimates, window_fit, window_walk
from jobs.forecast.strategy import Strategy
from jobs.forecast.window_walk import Part, StepTimes, WalkBatch, Work
from jobs.models import Rollout, Step
from jobs.reports import window_forecasts
from jobs.rollouts import eta
from jobs.rollouts.eta import RemainingTime

MOST_STARTS = 3_000
"""Starts that are walked in all: the page of a running rollout asks every few seconds."""
TO_START = (Step.Status.QUEUED, Step.Status.ADMITTED)
"""Steps that windows hold back; others have been begun."""


def remaining_time(
    rollout: Rollout,
    by_batch: Mapping[int, Mapping[str, int]],
    calendar: Sequence[CalendarEntry],
    freeze: ActiveFreeze | None,
) -> RemainingTime:
    """Estimate the remaining time and the end. Two queries more than `eta.remaining_time` where the target has a
    calendar. `by_batch`: nodes by status; `calendar`: what holds the rollout; `freeze`: the one in effect."""
    strategy = Strategy.from_json(rollout.plan.strategy)
    counts: Counter[str] = Counter()
    for batch in by_batch.values():
        counts.update(batch)
    left = eta.remaining_time(rollout, strategy, counts, by_batch)
    if left.seconds is None:
        return left
    if not (calendar or freeze):
        return _ending_in(left, now(), left.seconds)
    nodes, parts = _open_steps(rollout)
    if not any(step["status"] in TO_START for step in (*nodes, *parts)):
        return _ending_in(left, now(), left.seconds)
    if freeze and freeze.until is None:
        return RemainingTime(None, "A freeze without an end is in effect; time unknown.")
    begins = max(now(), freeze.until) if freeze and freeze.until else now()
    if not calendar:
        return _ending_in(left, begins, left.seconds, f"{left.why} A freeze ends first.")
    begins = max(begins, now() + timedelta(seconds=_soak_left(nodes, strategy)))  # a soak passes in a freeze, too
    return _over_the_calendar(left, _work_of(rollout, strategy, left.ratio, nodes, parts), calendar, begins)


def _ending_in(left: RemainingTime, begins: datetime, seconds: float, why: str = "") -> RemainingTime:
    ends = begins + timedelta(seconds=seconds)
    return replace(left, seconds=int((ends - now()).total_seconds()), ends=ends, why=why or left.why)


def _over_the_calendar(
    left: RemainingTime, work: Work, calendar: Sequence[CalendarEntry], begins: datetime
) -> RemainingTime:
    walk, _ = window_walk.typical_and_longest(work, calendar, begins, most_starts=MOST_STARTS)
    if walk.ends is None:
        return RemainingTime(None, window_forecasts.endless(work, calendar, begins))
    uses = window_forecasts.uses_of(walk, begins)
    zone = uses[0].zone if uses else "UTC"
    when = local_moment(begins + timedelta(seconds=walk.ends), zone)
    over = f" over {len(uses)} open times of the calendar" if len(uses) > 1 else ""
    return _ending_in(left, begins, walk.ends, f"{left.why} It ends {when}{over}.")


def _open_steps(rollout: Rollout) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the nodes' steps that have not ended, in their order but those under way first in each batch, and those
    of components. Two queries at most.
    """
    fields = ("batch", "worst_class", "status", "stages", "entered_at", "component", "kind")
    rows = rollout.steps.of_nodes().exclude(status__in=eta.ENDED).order_by("batch", "position").values(*fields)
    nodes = sorted(rows, key=lambda step: (step["batch"], step["status"] in TO_START))
    if not rollout.plan.has_parts:
        return nodes, []
    return nodes, list(rollout.steps.of_components().exclude(status__in=eta.ENDED).values(*fields))


def _work_of(
    rollout: Rollout,
    strategy: Strategy,
    ratio: float,
    nodes: Sequence[Mapping[str, Any]],
    parts: Sequence[Mapping[str, Any]],
) -> Work:
    summary = rollout.plan.summary
    control = {batch["number"] for batch in summary.get("batches", ()) if batch.get("is_control")}
    batches: dict[int, list[str]] = {}
    under_way: dict[str, list[float]] = {}
    for step in nodes:
        worst, status = step["worst_class"], step["status"]
        if status == Step.Status.SOAKING:
            continue
        if status not in TO_START:
            worst = f"{worst} under way"
            under_way.setdefault(worst, []).append(_seconds_left(summary, step, ratio))
        batches.setdefault(step["batch"], []).append(worst)
    times = {}
    for name in {name for names in batches.values() for name in names}:
        worst = name.removesuffix(" under way")
        spread = sorted(under_way.get(name) or (ratio * s for s in estimates.planned_spread(summary, worst)))
        # What needs no time in a window begins at any hour, as a node does that is at work already.
        needed = 0.0 if name in under_way else estimates.planned_needed(summary, worst)
        times[name] = StepTimes(tuple(spread), needed, Disruption(worst).takes_slot)
    before = (summary.get("parts") or {}).get("before", {})
    return Work(
        [WalkBatch(names, number in control) for number, names in batches.items()],
        times,
        window_forecasts.pacing_of(strategy, summary, has_control=bool(control & batches.keys())),
        [
            Part(
                step["component"],
                window_fit.part_seconds(summary, step["component"], step["kind"]),
                window_fit.part_needed(summary, step["component"], step["kind"]) if step["status"] in TO_START else 0.0,
                before.get(step["component"], ()),
            )
            for step in parts
        ],
    )


def _seconds_left(summary: Mapping[str, Any], step: Mapping[str, Any], ratio: float) -> float:
    """Return the seconds that a node at work has left."""
    spent = estimates.active_seconds(step["stages"]) + (now() - step["entered_at"]).total_seconds()
    return float(max(0.0, ratio * estimates.planned_seconds(summary, step["worst_class"]) - spent))


def _soak_left(nodes: Sequence[Mapping[str, Any]], strategy: Strategy) -> float:
    """Return how long the batch at work soaks on; 0 where it has other nodes, which take longer."""
    first = [step for step in nodes if step["batch"] == nodes[0]["batch"]]
    if not first or any(step["status"] != Step.Status.SOAKING for step in first):
        return 0.0
    latest: datetime = max(step["entered_at"] for step in first)
    return max(0.0, strategy.soak_seconds - (now() - latest).total_seconds())
