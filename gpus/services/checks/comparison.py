"""Comparison of a node's figures with those of nodes with the same GPUs, by medians: one bad node moves neither."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import NamedTuple

from gpus.models import CheckRun
from gpus.services.checks.catalog import Measure

COMPARED_FOR = timedelta(days=60)
"""Older results say little of a node now."""
FEWEST = 5
"""Nodes besides this one, below which nothing is compared."""
FAR = 4.0
"""Scaled median absolute deviations: of nodes that differ by chance, 1 in 30,000 is as far behind."""
SCALE = 1.4826
"""Of the median absolute deviation, to the standard deviation of a normal distribution."""
FLOOR = 0.02
"""Share of the median that is the least spread: nodes may repeat each other to the digit."""


class Alike(NamedTuple):
    """Hardware, program and parameters, which runs have in common whose figures may be compared."""

    check: str
    model: str
    gpus: int
    image: str
    program_version: str
    targets: str

    @classmethod
    def of(cls, run: CheckRun) -> Alike:
        targets = json.dumps(run.targets)
        return cls(run.check_name, run.model, run.gpus, run.image, run.program_version, targets)


def figure(run: CheckRun, measure: Measure) -> float | None:
    """Return what a run measured; None where it did not, or where that is no figure above 0."""
    value = run.measures.get(measure.name) if isinstance(run.measures, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


@dataclass(frozen=True, slots=True)
class Place:
    """A node among its peers by one measure."""

    value: float
    usual: float
    peers: int
    worse_than: int
    """How many of the peers do better."""
    is_far_below: bool

    @property
    def gap(self) -> float:
        """-0.12: 12 % below the usual."""
        return self.value / self.usual - 1 if self.usual else 0.0


def place(measure: Measure, value: float, others: Sequence[float]) -> Place | None:
    """None: too few to compare with."""
    if len(others) < FEWEST:
        return None
    usual = median(others)
    spread = max(SCALE * median(abs(other - usual) for other in others), FLOOR * abs(usual))
    behind = usual - value if measure.is_higher_better else value - usual
    better = sum((other > value) if measure.is_higher_better else (other < value) for other in others)
    return Place(value, usual, len(others), better, spread > 0 and behind > FAR * spread)


def far_below(values: Sequence[float]) -> Iterator[tuple[int, Place]]:
    """Yield the index and place of each that is far below the others, of a measure of which more is better.

    The same as `place` of each, without a sort for each. All values of the lower half have the same median of others.
    The value in the middle is never far: half of the others are as far from their median as it is, or further.
    """
    n, half = len(values), len(values) // 2
    if n <= FEWEST:
        return
    in_order = sorted(values)
    usual = in_order[half] if n % 2 == 0 else (in_order[half] + in_order[half + 1]) / 2
    deviations = sorted(abs(value - usual) for value in values)
    for index, value in enumerate(values):
        if value >= in_order[half]:
            continue
        spread = max(SCALE * _median_without(deviations, abs(value - usual)), FLOOR * abs(usual))
        if spread > 0 and usual - value > FAR * spread:
            yield index, Place(value, usual, n - 1, n - bisect_right(in_order, value), is_far_below=True)


def _median_without(in_order: Sequence[float], value: float) -> float:
    """Return the median of sorted values without one of them."""
    without, half = bisect_left(in_order, value), (len(in_order) - 1) // 2
    upper = in_order[half + (half >= without)]
    if len(in_order) % 2 == 0:
        return upper
    lower = in_order[half - 1 + (half - 1 >= without)]
    return (lower + upper) / 2
