"""Anomalies of a telemetry source, gathered during a reading."""

from __future__ import annotations

from gpus.metrics.samples import Code, ReadingFinding

EXAMPLE_LENGTH = 120


class Findings:
    """Counts by code, with one example of each: the smallest, so that the order of series does not matter."""

    def __init__(self) -> None:
        self._counts: dict[Code, int] = {}
        self._examples: dict[Code, str] = {}

    def add(self, code: Code, example: str = "", count: int = 1) -> None:
        if count <= 0:
            return
        self._counts[code] = self._counts.get(code, 0) + count
        short = "".join(letter if letter.isprintable() else "·" for letter in example[:EXAMPLE_LENGTH])
        known = self._examples.get(code)
        if short and (not known or short < known):
            self._examples[code] = short

    def count(self, code: Code) -> int:
        return self._counts.get(code, 0)

    def all(self) -> tuple[ReadingFinding, ...]:
        return tuple(
            ReadingFinding(code, count, self._examples.get(code, "")) for code, count in sorted(self._counts.items())
        )
