"""Forecast of a plan over the windows of its target, if it started now: the windows that it needs, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from common.clock import now
from common.templatetags.setpoint import duration
from jobs.calendars.open_times import CalendarEntry
from jobs.calendars.targets import ActiveFreeze, local_moment
from jobs.diffs.changes import Disruption
from jobs.forecast import estimates, schedule, window_fit, window_walk
from jobs.forecast.strategy import Strategy
from jobs.models import Plan

SHOWN = 12
"""Windows that are listed."""


@dataclass(frozen=True, slots=True)
class WindowUse:
    """One open time in which steps start."""

    name: str
    opens: datetime
    closes: datetime
    zone: str
    nodes: int
    """That start in it."""
    parts: int
    done: int
    """Nodes that have started by its end."""

    @property
    def words(self) -> str:
        return f"{local_moment(self.opens, self.zone)}, {duration(self.closes - self.opens)}"


@dataclass(frozen=True, slots=True)
class WindowForecast:
    """Forecast for a start as of `begins`."""

    begins: datetime
    sentence: str
    is_bound: bool = True
    """Whether any window or freeze of the calendar applies."""
    ends: datetime | None = None
    """None: not bound, or not within 400 days."""
    latest: datetime | None = None
    """The last end of all ways that were walked."""
    zone: str = "UTC"
    nodes: int = 0
    basis: str = ""
    """On what the durations rest."""
    uses: list[WindowUse] = field(default_factory=list)

    @property
    def shown(self) -> list[WindowUse]:
        return self.uses[:SHOWN]

    @property
    def more(self) -> int:
        return len(self.uses) - len(self.shown)

    @property
    def ends_local(self) -> str:
        return local_moment(self.ends, self.zone) if self.ends else ""

    @property
    def latest_local(self) -> str:
        """Empty where it is the same minute as `ends`."""
        text = local_moment(self.latest, self.zone) if self.latest else ""
        return "" if text == self.ends_local else text


def window_forecast(plan: Plan, calendar: Sequence[CalendarEntry], freeze: ActiveFreeze | None) -> WindowForecast:
    """Forecast an open plan. Three queries at most where the calendar has rules for its target, else none."""
    begins = max(now(), freeze.until) if freeze and freeze.until else now()
    if plan.status not in plan.NEXT:
        return WindowForecast(begins, "This plan is no longer open: only one that may still start has a forecast.")
    if not calendar:
        return WindowForecast(begins, "No window applies to this target: it may start at any time.", is_bound=False)
    work = work_of(plan)
    nodes = sum(len(batch.classes) for batch in work.batches)
    typical, longest = window_walk.typical_and_longest(work, calendar, begins)
    uses = uses_of(typical, begins)
    zone = uses[0].zone if uses else "UTC"
    ends = begins + timedelta(seconds=typical.ends) if typical.ends is not None else None
    latest = begins + timedelta(seconds=longest.ends) if longest.ends is not None else None
    sentence = _sentence(work, uses, local_moment(ends, zone)) if ends else endless(work, calendar, begins)
    return WindowForecast(
        begins, sentence, ends=ends, latest=latest, zone=zone, nodes=nodes, basis=_basis(plan), uses=uses
    )


def work_of(plan: Plan) -> window_walk.Work:
    """Read what a plan has to do: batches by class, parts by what they wait for. Two queries at most."""
    strategy, summary = Strategy.from_json(plan.strategy), plan.summary
    batches: dict[int, list[str]] = {}
    control: set[int] = set()
    rows = plan.nodes.filter(batch__gt=0, left_out="").order_by("batch", "position")
    for batch, worst, is_control in rows.values_list("batch", "worst_class", "is_control"):
        batches.setdefault(batch, []).append(worst)
        if is_control:
            control.add(batch)
    known = summary.get("parts") or {}
    before = known.get("before", {})
    kinds = dict(plan.components.filter(left_out="").values_list("component", "kind")) if known.get("seconds") else {}
    return window_walk.Work(
        [window_walk.WalkBatch(classes, number in control) for number, classes in batches.items()],
        {worst: _times(plan, worst) for worst in {worst for classes in batches.values() for worst in classes}},
        pacing_of(strategy, summary, has_control=bool(control)),
        [
            window_walk.Part(
                name,
                window_fit.part_seconds(summary, name, kind),
                window_fit.part_needed(summary, name, kind),
                before.get(name, ()),
            )
            for name, kind in kinds.items()
        ],
    )


def pacing_of(strategy: Strategy, summary: Mapping[str, Any], *, has_control: bool) -> window_walk.Pacing:
    return window_walk.Pacing(
        budget=strategy.allowed_out(int(summary.get("budget", 1))),
        at_once=strategy.max_in_flight,
        soak=strategy.soak_seconds,
        gate=strategy.gate_minutes * 60 if strategy.is_gated else 0,
        control=schedule.held_back_seconds(strategy) if has_control else 0,
    )


def _times(plan: Plan, worst: str) -> window_walk.StepTimes:
    return window_walk.StepTimes(
        estimates.planned_spread(plan.summary, worst),
        estimates.planned_needed(plan.summary, worst),
        Disruption(worst).takes_slot,
    )


def uses_of(walk: window_walk.Walk, begins: datetime) -> list[WindowUse]:
    """Count starts by open time; those without any are not needed."""
    out: list[WindowUse] = []
    starts = sorted(walk.starts, key=lambda start: start.at)
    place = done = 0
    for span in walk.spans:
        nodes = parts = 0
        while place < len(starts) and begins + timedelta(seconds=starts[place].at) < span.end:
            parts += starts[place].is_part
            nodes += not starts[place].is_part
            place += 1
        done += nodes
        if nodes or parts:
            out.append(WindowUse(span.name, span.start, span.end, span.zone, nodes, parts, done))
    return out


def _work_words(work: window_walk.Work) -> str:
    """`41 nodes × 9 min`, with the components."""
    nodes = sum(len(batch.classes) for batch in work.batches)
    middles = sorted(times.at(0.5) for times in work.times.values())
    words = []
    if nodes:
        each = " to ".join(dict.fromkeys((duration(middles[0]), duration(middles[-1]))))
        words.append(f"{nodes:,} node{'' if nodes == 1 else 's'} × {each}")
    if work.parts:
        words.append(f"{len(work.parts)} component{'' if len(work.parts) == 1 else 's'} or groups of policy objects")
    return " and ".join(words)


def _sentence(work: window_walk.Work, uses: Sequence[WindowUse], ends: str) -> str:
    if not uses:
        return "Nothing has to start."
    first, what = uses[0], _work_words(work)
    if len(uses) == 1:
        return f"{what}: all of it fits the window of {first.words}. It ends {ends}."
    will = (
        f"{first.nodes:,} node{'' if first.nodes == 1 else 's'} will" if first.nodes else "only what comes first will"
    )
    return f"{what} do not fit the window of {first.words}: {will}. It needs {len(uses)} windows and ends {ends}."


def endless(work: window_walk.Work, calendar: Sequence[CalendarEntry], begins: datetime) -> str:
    """Explain why it never ends."""
    needs = [*(times.needed for times in work.times.values()), *(part.needed for part in work.parts)]
    longest = max(needs, default=0.0)
    if not window_fit.next_long_enough(calendar, timedelta(seconds=longest), begins):
        return (
            f"{_work_words(work)}: no window within {window_fit.HORIZON.days} days is long enough for a step that "
            f"needs {duration(longest)}. Make one longer."
        )
    return f"{_work_words(work)} would not end within {window_walk.HORIZONS[-1].days} days."


def _basis(plan: Plan) -> str:
    clauses = [(plan.summary.get(name) or {}).get("basis", "") for name in ("estimate", "parts")]
    return "; ".join(clause for clause in clauses if clause)
