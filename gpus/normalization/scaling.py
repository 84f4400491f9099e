"""Percent or ratio? Decided for each exporter from all that it says, never for one value: 1 could be either.

Driver fields are whole percents (`…_GPU_UTIL`, and in DCGM 4.6 also `…_GPU_UTIL_RATIO`) or fractions (DCGM 4.7); some
collectors divide by 100 and keep the name. So a fraction between 0 and 1 proves a ratio, a number above 1 percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpus.metrics.nvidia import PERCENT, Guard, Name
from gpus.metrics.samples import Generation

_FRACTION, _ABOVE = 1, 2
_CLEARLY_ABOVE_ONE = 1.5
_MOST_PERCENT = 100.0


@dataclass(slots=True)
class Evidence:
    """Evidence of an exporter's scale, from its own values."""

    seen: dict[Name, int] = field(default_factory=dict)
    """By guarded name, what its values prove."""
    units: set[Generation] = field(default_factory=set)
    """Of names that exist only with the units of their generation."""

    def hear(self, name: Name, raw: float) -> None:
        if 0.0 < raw < 1.0:
            proof = _FRACTION
        elif _CLEARLY_ABOVE_ONE < raw <= _MOST_PERCENT:
            proof = _ABOVE
        else:
            proof = 0
        self.seen[name] = self.seen.get(name, 0) | proof

    def scale(self, name: Name) -> float | None:
        """Return the scale that the exporter's own values prove, else None."""
        seen = self.seen.get(name, 0)
        if name.guard is Guard.PERCENT:
            return PERCENT if seen & _ABOVE else (1.0 if seen & _FRACTION else None)
        if seen & _FRACTION:
            return 1.0
        if seen & _ABOVE:
            return PERCENT
        return 1.0 if self.units == {Generation.BASE_UNITS} else None

    def fallback(self, name: Name) -> float | None:
        """Return the likely scale where neither its own values nor another exporter of the cluster prove one."""
        if name.guard is Guard.PERCENT:
            return PERCENT
        return PERCENT if self.units == {Generation.CLASSIC} else None


def scales(exporters: Mapping[str, Evidence]) -> dict[tuple[str, Name], float | None]:
    """Return by exporter and guarded name the factor for its values; None where a 1 is ambiguous.

    An exporter that proves nothing by itself (all its GPUs idle) gets the scale that all proven exporters agree on.
    """
    by_exporter = {(who, name): evidence.scale(name) for who, evidence in exporters.items() for name in evidence.seen}
    agreed = _agreed(by_exporter.items())
    return {
        (who, name): scale or agreed.get(name) or exporters[who].fallback(name)
        for (who, name), scale in by_exporter.items()
    }


def _agreed(by_exporter: Iterable[tuple[tuple[str, Name], float | None]]) -> dict[Name, float]:
    proven: dict[Name, set[float]] = {}
    for (_who, name), scale in by_exporter:
        if scale is not None:
            proven.setdefault(name, set()).add(scale)
    return {name: next(iter(choices)) for name, choices in proven.items() if len(choices) == 1}
