"""Attrition of a study with a control: nodes without figures by arm, and whether chance explains the difference.

By Fisher's exact test, two-sided. Where one arm loses more nodes than the other, what is left of the arms is no longer
alike, and their difference is not the change's alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpus.effects import measures, windows
from gpus.models import StudyNode

NO_HOST_FIGURE = "no figure of the host"
UNEVEN = 0.05
"""Below this p the arms lost nodes unequally."""


@dataclass(slots=True)
class ArmAttrition:
    nodes: int = 0
    """That chance put into the arm."""
    lost: Counter[str] = field(default_factory=Counter)
    """Nodes without a figure, by why."""
    deviations: Counter[str] = field(default_factory=Counter)
    """Nodes that failed, were put back or are gone, and stay in the arm."""

    @property
    def lost_nodes(self) -> int:
        return self.lost.total()


@dataclass(slots=True)
class Attrition:
    treated: ArmAttrition
    control: ArmAttrition

    @property
    def p(self) -> float:
        return fisher(self.treated.lost_nodes, self.treated.nodes, self.control.lost_nodes, self.control.nodes)

    def to_json(self) -> dict[str, Any]:
        arms = {"treated": self.treated, "control": self.control}
        out: dict[str, Any] = {
            name: {
                "nodes": arm.nodes,
                "lost": arm.lost_nodes,
                "why": dict(arm.lost),
                "deviations": dict(arm.deviations),
            }
            for name, arm in arms.items()
        }
        return out | {"p": self.p, "is_uneven": self.p < UNEVEN}


def of_rows(rows: Iterable[StudyNode], primary: str = "") -> Attrition:
    """Count nodes that were looked at; one has a figure if any of its devices has.

    Where the primary measure is of hosts, it is the host's figure that counts: an exporter may be lost with a change.
    """
    of_host = primary in measures.BY_NAME and measures.BY_NAME[primary].of_host
    result = Attrition(ArmAttrition(), ArmAttrition())
    for row in rows:
        if row.until is None:
            continue
        arm = result.treated if row.is_treated else result.control
        arm.nodes += 1
        if row.deviation:
            arm.deviations[row.deviation] += 1
        why = _lost(row.left_out, row.devices)
        if not why and of_host and primary not in row.host.get("figures", {}):
            why = row.host.get("why") or NO_HOST_FIGURE
        if why:
            arm.lost[why] += 1
    return result


def _lost(left_out: str, devices: Iterable[Mapping[str, Any]]) -> str:
    """Return why a node has no figure: its own reason, or that of most of its devices; empty if it has one."""
    if left_out:
        return left_out
    whys = Counter(device["left_out"] for device in devices)
    if not whys:
        return windows.NO_READINGS
    return "" if "" in whys else min(whys, key=lambda why: (-whys[why], why))


def fisher(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return the probability of shares at least as unlikely as `first` of `of_first` and `second` of `of_second`."""
    both, everything = first + second, of_first + of_second

    def logarithm(count: int) -> float:
        return _log_choose(of_first, count) + _log_choose(of_second, both - count) - _log_choose(everything, both)

    possible = range(max(0, both - of_second), min(both, of_first) + 1)
    bound = logarithm(first) + 1e-9  # equally unlikely ones differ by rounding
    return min(1.0, sum(math.exp(logarithm(count)) for count in possible if logarithm(count) <= bound))


def _log_choose(of: int, count: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)
