"""Walk of a rollout through its windows: when each node would start and end, by the strategy and measured durations.

Arithmetic without a database. It follows the engine's rules: batches in turn, places of the budget, nodes at once,
soaking, gates, the control group, and no start that would not end inside the window. Durations are drawn from
their spread, by a seed, so that of several nodes at once the slowest counts, as in a real batch.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from random import Random

from jobs.calendars.open_times import CalendarEntry, Span, open_spans
from jobs.diffs.dependency_graph import NODES

HORIZONS = tuple(timedelta(days=days) for days in (14, 62, 400))
"""How far is walked, nearest first: most rollouts end within some nights."""
WAYS, MOST_STARTS = 15, 15_000
"""Ways that are walked; fewer where there are many nodes, so that a page of thousands does not take a second."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of a step of one class, in seconds."""

    spread: tuple[float, ...]
    """In rising order, equally likely; of one value it is a constant."""
    needed: float
    """That must be left in the window."""
    takes_slot: bool

    def at(self, share: float) -> float:
        """Return the duration that this share of the steps do not exceed."""
        place = share * (len(self.spread) - 1)
        below = min(int(place), len(self.spread) - 1)
        above = min(below + 1, len(self.spread) - 1)
        return self.spread[below] + (self.spread[above] - self.spread[below]) * (place - below)


@dataclass(frozen=True, slots=True)
class WalkBatch:
    classes: Sequence[str]
    """Of its nodes, in their order."""
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A component or a group of policy objects."""

    name: str
    seconds: float
    needed: float
    before: Sequence[str] = ()
    """Parts that it waits for, and NODES."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """A strategy's numbers that decide about time; seconds."""

    budget: int
    at_once: int
    soak: float = 0.0
    gate: float = 0.0
    """After the last node of a batch, before the next one opens."""
    control: float = 0.0
    """After the last changed node, before the control opens."""


@dataclass(frozen=True, slots=True)
class Work:
    """All that a rollout has to do."""

    batches: Sequence[WalkBatch]
    times: Mapping[str, StepTimes]
    pacing: Pacing
    parts: Sequence[Part] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """One start, by seconds since the beginning of the walk."""

    at: float
    ends: float
    is_part: bool = False


@dataclass(slots=True)
class Walk:
    """One way that it may go."""

    starts: list[Start] = field(default_factory=list)
    ends: float | None = 0.0
    """Seconds until everything is done; None: not within the horizon."""
    spans: Sequence[Span] = ()


def typical_and_longest(
    work: Work, entries: Sequence[CalendarEntry], begins: datetime, *, most_starts: int = MOST_STARTS
) -> tuple[Walk, Walk]:
    """Walk through it several times with other durations; return the way with the median end, and the last to end."""
    nodes = sum(len(batch.classes) for batch in work.batches)
    ways = max(1, min(WAYS, most_starts // max(nodes, 1)))
    out: list[Walk] = []
    for horizon in HORIZONS:
        spans = open_spans(entries, begins, begins + horizon)
        out = [_Walker(work, spans, begins, way).walk() for way in range(ways)]
        if all(walk.ends is not None for walk in out):
            break
    out.sort(key=lambda walk: inf if walk.ends is None else walk.ends)
    return out[len(out) // 2], out[-1]


class _Walker:
    def __init__(self, work: Work, spans: Sequence[Span], begins: datetime, seed: int) -> None:
        self.work, self.draw = work, Random(seed)  # noqa: S311 — durations, the same each time
        self.spans = [((s.start - begins).total_seconds(), (s.end - begins).total_seconds()) for s in spans]
        self.out = Walk(spans=spans)
        self.done: dict[str, float | None] = {}
        self.before: dict[str, Sequence[str]] = {part.name: part.before for part in work.parts}
        if work.batches:
            self.before[NODES] = ()

    def walk(self) -> Walk:
        ends = [self._end_of(name) for name in self.before]
        known = [end for end in ends if end is not None]
        self.out.ends = max(known, default=0.0) if len(known) == len(ends) else None
        return self.out

    def _end_of(self, name: str) -> float | None:
        """Return when a part, or all nodes, are done; what waits for each other on a circle does not wait."""
        if name not in self.done:
            self.done[name] = 0.0
            firsts = [self._end_of(other) for other in self.before[name] if other in self.before]
            known = [end for end in firsts if end is not None]
            if len(known) < len(firsts):
                self.done[name] = None
            else:
                begins = max(known, default=0.0)
                self.done[name] = self._nodes(begins) if name == NODES else self._part(name, begins)
        return self.done[name]

    def _part(self, name: str, begins: float) -> float | None:
        part = next(p for p in self.work.parts if p.name == name)
        at = self._fitting(begins, part.needed)
        if at is None:
            return None
        self.out.starts.append(Start(at, at + part.seconds, is_part=True))
        return at + part.seconds

    def _nodes(self, begins: float) -> float | None:
        at, gate, control = begins, self.work.pacing.gate, self.work.pacing.control
        last: float | None = None
        for number, batch in enumerate(self.work.batches):
            if last is not None:
                at = max(at, last + gate)
                if batch.is_control and not self.work.batches[number - 1].is_control:
                    at = max(at, last + control)
            walked = _BatchWalk(self, batch, at).walk()
            if walked is None:
                return None
            last, at = walked
        return last if last is not None else begins

    def duration(self, times: StepTimes) -> float:
        return times.at(self.draw.random())

    def _fitting(self, at: float, needed: float) -> float | None:
        for begin, end in self.spans:
            if max(begin, at) + needed <= end:
                return max(begin, at)
        return None

    def closes(self, at: float) -> float:
        """Return when the open time at a moment closes; the moment itself where it is closed."""
        place = bisect_right(self.spans, (at, inf)) - 1
        return max(at, self.spans[place][1]) if place >= 0 else at

    def opens_after(self, at: float) -> float | None:
        place = bisect_right(self.spans, (at, inf))
        return self.spans[place][0] if place < len(self.spans) else None


class _BatchWalk:
    """One batch: the next node in order that may start does, and else time passes to the next event."""

    def __init__(self, walker: _Walker, batch: WalkBatch, at: float) -> None:
        self.walker, self.at = walker, at
        self.times, self.pacing = walker.work.times, walker.work.pacing
        self.queued: dict[str, deque[int]] = {}
        for place, name in enumerate(batch.classes):
            self.queued.setdefault(name, deque()).append(place)
        self.running: list[tuple[float, int, int]] = []
        """Heap of (when, slots that come free, nodes that end)."""
        self.slots = self.in_flight = 0
        self.last = at
        self.opens = at
        self.closes = walker.closes(at)

    def walk(self) -> tuple[float, float] | None:
        """Return when its last node succeeded, and when the next batch may open; None: not within the horizon."""
        while self.queued or self.running:
            if self.queued and (name := self._startable()) is not None:
                self._start(name)
            elif not self._pass_time():
                return None
        return self.last, max(self.last, self.opens)

    def _startable(self) -> str | None:
        if self.in_flight >= self.pacing.at_once:
            return None
        return min(self._fit(), key=lambda name: self.queued[name][0], default=None)

    def _fit(self) -> Iterator[str]:
        for name in self.queued:
            times = self.times[name]
            has_slot = not times.takes_slot or self.slots < max(1, self.pacing.budget)
            if has_slot and self.at + times.needed <= self.closes:
                yield name

    def _start(self, name: str) -> None:
        self.queued[name].popleft()
        if not self.queued[name]:
            del self.queued[name]
        times = self.times[name]
        ends = self.at + self.walker.duration(times)
        self.walker.out.starts.append(Start(self.at, ends))
        self.in_flight += 1
        if times.takes_slot:  # it soaks for itself, without its slot
            self.slots += 1
            heapq.heappush(self.running, (ends, 1, 0))
            heapq.heappush(self.running, (ends + self.pacing.soak, 0, 1))
        else:
            heapq.heappush(self.running, (ends, 0, 1))
            self.opens = max(self.opens, ends + self.pacing.soak)

    def _pass_time(self) -> bool:
        opens = self.walker.opens_after(self.at) if self.queued else None
        if self.running and (opens is None or self.running[0][0] <= opens):
            self.at, slots, nodes = heapq.heappop(self.running)
            self.slots -= slots
            self.in_flight -= nodes
            self.last = max(self.last, self.at)
        elif opens is not None:
            self.at = opens
        else:
            return False
        self.closes = self.walker.closes(self.at)
        return True
