"""Quantiles of classic histograms whose buckets are summed over pods first, by Prometheus' own interpolation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Buckets = Mapping[float, float]
"""Observations up to each boundary; math.inf has all of them."""


class Quantile(NamedTuple):
    value: float
    is_least: bool = False
    """It lies beyond the highest boundary: more than `value`."""


def summed(histograms: Iterable[Buckets]) -> Buckets:
    """Add up histograms; where their boundaries differ, at those that all of them have: there sums are exact."""
    several = [buckets for buckets in histograms if buckets.get(math.inf)]
    if not several:
        return {}
    shared = set(several[0]).intersection(*several[1:])
    return {boundary: sum(buckets[boundary] for buckets in several) for boundary in sorted(shared)}


def quantile(share: float, buckets: Buckets) -> Quantile | None:
    """Return histogram_quantile's answer; None where nothing was observed, or no finite boundary is there."""
    boundaries = sorted(boundary for boundary in buckets if math.isfinite(boundary))
    total = buckets.get(math.inf, 0.0)
    if not boundaries or not total > 0:
        return None
    rank, before, below = share * total, 0.0, 0.0
    for place, boundary in enumerate(boundaries):
        count = max(before, buckets[boundary])  # rates of single buckets may differ by rounding
        if count >= rank:
            if place == 0 and boundary <= 0:
                return Quantile(boundary)
            within = count - before
            return Quantile(below + (boundary - below) * ((rank - before) / within if within else 1.0))
        before, below = count, boundary
    return Quantile(boundaries[-1], is_least=True)
