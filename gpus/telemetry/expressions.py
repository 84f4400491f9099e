"""PromQL that is evaluated for one page view: at an instant, or over a range in equal steps. Nothing of it is stored.

Each answer is bounded in bytes, and all of them by one deadline, which the caller sets.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clusters.fleet import FleetError
from gpus.telemetry.prometheus import Ask, NoQuery, NotThisOne, printable, refusal

MOST_BYTES = 4 * 1024 * 1024
"""Of one answer: 48 steps of 800 disks are 1 MB."""
CALL_SECONDS = 8.0
AT_ONCE = 8
"""Expressions that are evaluated at the same time."""
Labels = Mapping[str, str]
Row = tuple[Labels, Sequence[tuple[float, float]]]
"""Labels of a series, and its points as time and value; values that are not finite are left out."""


class Unanswered(Exception):
    """Failure of one expression. `str()` is a sentence; `is_final`: no other one would be answered either."""

    def __init__(self, sentence: str, *, is_final: bool) -> None:
        super().__init__(sentence)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Span:
    """Equal steps up to `end`; each point is of the step that ends with it."""

    end: datetime
    step: int
    """Seconds."""
    steps: int

    @property
    def ends(self) -> list[float]:
        last = self.end.timestamp()
        return [last - self.step * number for number in range(self.steps - 1, -1, -1)]


@dataclass(frozen=True, slots=True)
class Expressions:
    """Evaluation by one Prometheus. Safe to use from several threads."""

    ask: Ask
    title: str
    """Of the Prometheus, to begin a sentence with."""
    selector: str
    """Label matchers of the source's settings, which every selector carries."""
    deadline: float
    """time.monotonic()'s."""
    close: Callable[[], None] = lambda: None
    warnings: list[str] = field(default_factory=list)
    """By which words answers call themselves incomplete, as those of Thanos and Mimir do."""

    def at(self, query: str, at: datetime) -> list[Row]:
        """Evaluate at an instant. Raises Unanswered."""
        return self._rows("api/v1/query", {"query": query, "time": f"{at.timestamp():.3f}"})

    def over(self, query: str, span: Span) -> list[Row]:
        """Evaluate at the end of each step. Raises Unanswered."""
        ends = span.ends
        parameters = {"query": query, "start": f"{ends[0]:.3f}", "end": f"{ends[-1]:.3f}", "step": str(span.step)}
        return self._rows("api/v1/query_range", parameters)

    def _rows(self, path: str, parameters: Mapping[str, str]) -> list[Row]:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Unanswered("The time for reading was over.", is_final=True)
        try:
            reply = self.ask(path, parameters, MOST_BYTES, min(CALL_SECONDS, left))
            if reply.status != 200:
                raise refusal(reply)
            rows, warnings = _read(reply.body)
        except (FleetError, NoQuery) as error:
            raise Unanswered(f"{self.title} could not be read: {str(error).rstrip('.')}.", is_final=True) from error
        except NotThisOne as error:
            raise Unanswered(str(error), is_final=False) from error
        self.warnings.extend(f"{self.title} warns: {printable(text)}" for text in warnings[:1])
        return rows


def _read(body: bytes) -> tuple[list[Row], list[Any]]:
    """Return its series and its warnings. Raises NoQuery where it is no answer of Prometheus."""
    try:
        answer = json.loads(body)
        warnings = answer.get("warnings")
        rows: list[Row] = [(_labels(row["metric"]), _points(row)) for row in answer["data"]["result"]]
        return rows, warnings if isinstance(warnings, list) else []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoQuery("What answers there is not Prometheus.") from error


def _labels(raw: Mapping[str, Any]) -> Labels:
    return {str(name): str(text) for name, text in raw.items()}


def _points(row: Mapping[str, Any]) -> list[tuple[float, float]]:
    pairs = row["values"] if "values" in row else [row["value"]]
    points = [(float(when), float(value)) for when, value in pairs]
    return [(when, value) for when, value in points if math.isfinite(value)]
