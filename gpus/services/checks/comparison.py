"""Comparison of a node's figures with those of nodes with the same GPUs, by medians: one bad node moves neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpus.services.checks.catalog import Measure

FEWEST = 5
"""Nodes besides this one, below which nothing is compared."""
FAR = 4.0
"""Scaled median absolute deviations: of nodes that differ by chance, 1 in 30,000 is as far behind."""
SCALE = 1.4826
"""Of the median absolute deviation, to the standard deviation of a normal distribution."""
FLOOR = 0.02
"""Share of the median that is the least spread: nodes may repeat each other to the digit."""


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
