"""Quantiles of Student's t, by the standard library alone."""

from __future__ import annotations

import math
from functools import lru_cache


def t_quantile(p: float, freedom: float) -> float:
    """Return a quantile of Student's t, 0.5 < p < 1.

    `freedom` is ≥ 1, rounded down to a tenth, which errs on the wide side.
    """
    return _t_quantile(p, math.floor(min(freedom, 1e5) * 10) / 10)


@lru_cache(maxsize=4096)
def _t_quantile(p: float, freedom: float) -> float:
    low, high = 0.0, 1.0
    while _tail(high, freedom) > 1 - p:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, freedom) > 1 - p else (low, middle)
    return high


def _tail(t: float, freedom: float) -> float:
    """P(T > t), t ≥ 0: half the regularised incomplete beta function at freedom/(freedom + t²)."""
    return _beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function by its continued fraction (Lentz; DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    value, c, d = 1.0, 1.0, 0.0
    for step in range(400):
        m = step // 2
        if step == 0:
            numerator = 1.0
        elif step % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + numerator * d) or 1e-300)
        c = (1 + numerator / c) or 1e-300
        value *= c * d
        if step and abs(c * d - 1) < 1e-12:
            break
    return front * (value - 1)
