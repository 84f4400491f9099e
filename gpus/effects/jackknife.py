"""The cluster jackknife (CV3), with and without adjustment by the past: `gpus.effects.estimation` has why."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpus.effects.student import t_quantile

NOTHING = 1e-9
"""Of sums: what is left of rounding when a cluster is taken out of its own total."""

MOST_OF_ONE = 0.5
"""Of the past's variance that a cluster may have: more, and what happened to it alone would decide the weight."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        return self.low <= 0 <= self.high


@dataclass(slots=True)
class Sums:
    """Figures of some devices added up, and their number."""

    count: int = 0
    before: float = 0.0
    after: float = 0.0

    def add(self, other: Sums, sign: int = 1) -> None:
        self.count += sign * other.count
        self.before += sign * other.before
        self.after += sign * other.after

    def without(self, other: Sums | None) -> Sums:
        rest = Sums(self.count, self.before, self.after)
        if other is not None:
            rest.add(other, -1)
        return rest


Cell = tuple[str, bool]
"""(stratum, whether treated)"""
Cells = Mapping[Cell, Sums]
Grouped = tuple[Mapping[str, Cells], Cells]
"""By cluster, and of all of them."""
Statistic = Callable[[Cells], float | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    value: float
    interval: Interval
    unadjusted: float
    narrower: float = 0.0
    weight: float | None = None

    def as_ratio(self) -> Estimate:
        """Return an estimate of a logarithm as one of a ratio less 1."""
        ends = Interval(math.expm1(self.interval.low), math.expm1(self.interval.high))
        return replace(self, value=math.expm1(self.value), interval=ends, unadjusted=math.expm1(self.unadjusted))


def estimate(statistic: Statistic, own: Grouped, past: Grouped | None, confidence: float) -> Estimate | None:
    """Estimate with its interval, adjusted where there is a past; None where a cluster carries all of it.

    Whether it is adjusted is decided by the past and the arms alone, never by what came out of it.
    """
    by_cluster, total = own
    whole = statistic(total)
    left = _without_each(statistic, by_cluster, total, by_cluster)
    if whole is None or left is None:
        return None
    jackknife = Jackknife(by_cluster)
    plain = jackknife.interval(whole, left, confidence)
    expected = statistic(past[1]) if past else None
    left_of_past = _without_each(statistic, *past, by_cluster) if past and expected is not None else None
    if expected is None or left_of_past is None:
        return Estimate(whole, plain, whole)
    # Of each cluster: what leaving it out does to the estimate, and to the past's.
    moves = [(a - whole, b - expected) for a, b in zip(left, left_of_past, strict=True)]
    products = [factor * a * b for factor, (a, b) in zip(jackknife.factors, moves, strict=True)]
    squares = [factor * b * b for factor, (_, b) in zip(jackknife.factors, moves, strict=True)]
    both, variance = sum(products), sum(squares)
    if variance <= NOTHING**2 or max(squares) > MOST_OF_ONE * variance:
        return Estimate(whole, plain, whole)
    weight = both / variance
    value = whole - weight * expected
    weights = [(both - p) / (variance - s) for p, s in zip(products, squares, strict=True)]
    adjusted = [a - w * b for a, b, w in zip(left, left_of_past, weights, strict=True)]
    interval = jackknife.interval(value, adjusted, confidence)
    width = plain.high - plain.low
    narrower = 1 - (interval.high - interval.low) / width if width else 0.0
    return Estimate(value, interval, whole, narrower, weight)


def _without_each(
    statistic: Statistic, by_cluster: Mapping[str, Cells], total: Cells, names: Iterable[str]
) -> list[float] | None:
    """Return the statistic without each of the named clusters in turn; None where it cannot be had without one."""
    whole, out = statistic(total), []
    for name in names:
        cells = by_cluster.get(name)
        left = statistic({cell: sums.without(cells.get(cell)) for cell, sums in total.items()}) if cells else whole
        if left is None:
            return None
        out.append(left)
    return out


class Jackknife:
    """Variance over clusters, each counted with those of its own cells; degrees of freedom by Satterthwaite's rule."""

    def __init__(self, by_cluster: Mapping[str, Cells]) -> None:
        sizes = Counter(cell for cells in by_cluster.values() for cell in cells)
        self._groups = [frozenset(cells) for cells in by_cluster.values()]
        # A cluster in several cells: the factor nearer to 1.
        largest = [max(sizes[cell] for cell in group) for group in self._groups]
        self.factors = [(size - 1) / size for size in largest]

    def interval(self, whole: float, left: Sequence[float], confidence: float) -> Interval:
        squares: dict[frozenset[Cell], list[float]] = defaultdict(list)
        for group, factor, value in zip(self._groups, self.factors, left, strict=True):
            squares[group].append(factor * (value - whole) ** 2)
        variance, denominator = 0.0, 0.0
        for of_group in squares.values():
            part = sum(of_group)
            variance += part
            denominator += part * part / max(1, len(of_group) - 1)
        if not denominator:
            return Interval(whole, whole)
        half = t_quantile(0.5 + confidence / 2, variance * variance / denominator) * math.sqrt(variance)
        return Interval(whole - half, whole + half)
