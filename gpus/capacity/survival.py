"""Quantiles of waits of which some are not over: by Kaplan and Meier's product limit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Wait(NamedTuple):
    seconds: float
    is_over: bool
    """It was admitted after so long; else it waited at least so long, and more was not seen."""


@dataclass(frozen=True, slots=True)
class Quantile:
    seconds: float
    is_least: bool = False
    """So many were not admitted as far as is known: the quantile is at least that."""


def quantiles(waits: Iterable[Wait], shares: Iterable[float]) -> list[Quantile | None]:
    """Return for each share the time within which so many were admitted; None without any wait.

    A wait that is not over counts as longer than it has been, and leaves those at risk after that. Without any of
    those it is the smallest wait that at least so many did not exceed.
    """
    listed = sorted(waits)
    if not listed:
        return [None for _ in shares]
    steps, longest = _curve(listed), max(wait.seconds for wait in listed)
    return [
        next((Quantile(seconds) for seconds, left in steps if left <= 1 - share + 1e-9), Quantile(longest, True))
        for share in shares
    ]


def _curve(listed: list[Wait]) -> list[tuple[float, float]]:
    """Return [(seconds, share that waits longer)] at each wait that was over then."""
    over, ended = Counter[float](), Counter[float]()
    for wait in listed:
        ended[wait.seconds] += 1
        over[wait.seconds] += wait.is_over
    at_risk, left, steps = len(listed), 1.0, []
    for seconds in sorted(ended):
        if over[seconds]:
            left *= 1 - over[seconds] / at_risk
            steps.append((seconds, left))
        at_risk -= ended[seconds]
    return steps
