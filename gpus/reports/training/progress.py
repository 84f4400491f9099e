"""Steps of one training job over time: made, kept, and taken back by restarts. A pure fold over samples.

A trainer that restarts continues from its last checkpoint, so its step falls to that: what lies between was done twice.
Where it falls to the first steps, a new run begins, or one that has no checkpoint: steps alone do not tell which.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_STEP = 1e12
"""A greater value is no number of steps."""
GAP = 2.5
"""Resolutions without a sample from which nothing is known of the time between."""
SKEW = 60.0
"""Seconds between two ranks' scrapes at most: a fall by less work than that may be another rank's older sample."""
MOST_FALLS = 100
"""That are listed."""
ENOUGH = 10
"""Steps, or resolutions, from which the time between two changes is exact to a tenth."""
FEWEST_STEPS = 5
"""Steps with a known time from which a median says anything."""


@dataclass(frozen=True, slots=True)
class Fall:
    """A restart, as the steps show it."""

    at: float
    """Time of the first sample after it."""
    highest: float
    """Step before it, at least."""
    resumed: float
    """First step after it that a sample has."""

    @property
    def lost(self) -> float:
        return self.highest - self.resumed


@dataclass(frozen=True, slots=True)
class Progress:
    first: float | None = None
    """Step of the first sample that has one."""
    last: float | None = None
    made: float = 0.0
    """Steps made, those that were taken back among them."""
    kept: float = 0.0
    """Steps made that no restart took back, since the run began last; a restart may take back more than that."""
    seen: float = 0.0
    """Of those kept, without what was made over gaps: their time may not be known."""
    gaps: tuple[tuple[float, float], ...] = ()
    """Times of the samples around each gap over which steps were made."""
    begun_again: int = 0
    """How often it fell to its first steps."""
    falls: tuple[Fall, ...] = ()
    step_seconds: float | None = None
    """Median time of a step; None: too few are known."""

    @property
    def latest_falls(self) -> tuple[Fall, ...]:
        return self.falls[-MOST_FALLS:]

    @property
    def lost(self) -> float:
        """Return the steps that restarts took back: at least so many, for samples do not show the very last one."""
        return sum(fall.lost for fall in self.falls)


def clean(samples: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return (time, step) in order, one for each time.

    Zero is no step yet: trainers export it from their start until the first step is done, also of a run that
    continues from a checkpoint.
    """
    by_time: dict[float, float] = {}
    for at, value in samples:
        if math.isfinite(at) and 0 < value < MOST_STEP:  # which NaN is not
            by_time[at] = max(value, by_time.get(at, 0.0))
    return sorted(by_time.items())


def fold(
    samples: Iterable[tuple[float, float]],
    resolution: float,
    *,
    has_ranks: bool = False,
    known: Iterable[float] | None = None,
) -> Progress:
    """Return what the samples show.

    `resolution`: seconds between two samples. `has_ranks`: several ranks export the step, and each sample is that of
    the foremost one that was there. `known`: times at which its pods were scraped, also without a step; where it is
    not given, those of the samples.
    """
    samples = list(samples)
    rows = clean(samples)
    if not rows:
        return Progress()
    median = step_seconds(rows, resolution)
    slack = math.ceil(SKEW / median) if has_ranks and median else 0
    early = max(1.0, GAP * resolution / median) if median else ENOUGH
    high, made, kept, seen, begun_again = rows[0][1], 0.0, 0.0, 0.0, 0
    falls: list[Fall] = []
    gaps: list[tuple[float, float]] = []
    holes = _holes([at for at, _ in samples] if known is None else known, resolution)
    before = rows[0][0]
    for at, value in rows[1:]:
        if value >= high:
            rise = value - high
            made, kept, high = made + rise, kept + rise, value
            if not rise or not _overlaps(holes, before, at):
                seen += rise
            else:
                gaps.append((before, at))
        elif high - value > slack:
            if value <= early:
                kept, seen, begun_again = 0.0, 0.0, begun_again + 1
            else:
                falls.append(Fall(at, high, value))
                kept, seen = max(0.0, kept - (high - value)), max(0.0, seen - (high - value))
            high = value
        before = at
    return Progress(rows[0][1], high, made, kept, seen, tuple(gaps), begun_again, tuple(falls), median)


def _holes(known: Iterable[float], resolution: float) -> list[tuple[float, float]]:
    times = sorted(at for at in known if math.isfinite(at))
    return [(start, end) for start, end in pairwise(times) if end - start > GAP * resolution]


def _overlaps(holes: Sequence[tuple[float, float]], start: float, end: float) -> bool:
    place = bisect_right(holes, (start, math.inf)) - 1
    return (place >= 0 and holes[place][1] > start) or (place + 1 < len(holes) and holes[place + 1][0] < end)


def is_apart(spreads: Sequence[float], median: float | None) -> bool:
    """Return whether series that were there at once differ by more than their scrapes do: they count different runs.

    `spreads`: highest − lowest step at each time. While one of them begins again they differ for a while.
    """
    most = math.ceil(SKEW / median) + 1 if median else 1
    return bool(spreads) and sum(spread > most for spread in spreads) > len(spreads) / 2


def step_seconds(rows: Sequence[tuple[float, float]], resolution: float) -> float | None:
    """Return the median time of a step, each step weighing the same.

    It is told by when the step changed, so a step may take longer than the resolution. Nothing is known of the time
    over a fall and over a gap.
    """
    blocks = list(_blocks(rows, resolution))
    weight = sum(steps for _, steps in blocks)
    if weight < FEWEST_STEPS:
        return None
    passed = 0.0
    for seconds, steps in sorted((seconds / steps, steps) for seconds, steps in blocks):
        passed += steps
        if passed >= weight / 2:
            return seconds
    raise AssertionError("the weights add up")


def _blocks(rows: Sequence[tuple[float, float]], resolution: float) -> Iterator[tuple[float, float]]:
    """Yield seconds and steps between changes, several together until either is enough.

    Samples show a change up to a resolution late, and a step that is under way not at all: of few steps in a short
    time neither is exact, and short blocks keep a stall to itself.
    """
    begun: tuple[float, float] | None = None
    last = (0.0, 0.0)
    for (before, low), (at, value) in pairwise(rows):
        is_broken = value < low or at - before > GAP * resolution
        if begun and is_broken and last[1] > begun[1]:
            yield last[0] - begun[0], last[1] - begun[1]
        if is_broken:
            begun = None
        elif value > low:
            begun, last = begun or (at, value), (at, value)
            seconds, steps = at - begun[0], value - begun[1]
            if steps >= ENOUGH or (steps and seconds >= ENOUGH * resolution):
                yield seconds, steps
                begun = last
    if begun and last[1] > begun[1]:
        yield last[0] - begun[0], last[1] - begun[1]
