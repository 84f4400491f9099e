"""The catalog of inference servers' metrics (servers.yaml), and PromQL for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

TARGET = ("namespace", "pod", "instance", "job")
"""Labels by which Prometheus knows what it scraped. What a pod itself exports under these names is renamed to
`exported_namespace` and so on, unless the scrape honors labels: see `Server.discovery`."""
Kind = Literal["gauge", "counter", "histogram", "most"]
KINDS: Mapping[str, Kind] = {
    "running": "gauge", "waiting": "gauge", "kv_cache": "gauge", "kv_used": "gauge", "kv_blocks": "gauge",
    "tokens_out": "counter", "tokens_in": "counter", "requests": "counter", "preemptions": "counter",
    "queue_seconds": "counter", "queue_count": "counter", "ttft": "histogram", "tpot": "histogram",
}  # fmt: skip
MOST: Mapping[str, str] = {"running_most": "running", "kv_most": "kv_cache", "kv_used_most": "kv_used"}
"""Figures that are the highest reading of another."""
_FUNCTIONS: Mapping[Kind, str] = {
    "gauge": "avg_over_time", "counter": "rate", "histogram": "rate", "most": "max_over_time",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """One figure under one of its names."""

    figure: str
    server: str
    rank: int
    """Of several names of one figure the lowest that has a value counts."""
    metric: str
    kind: Kind
    engines: Sequence[str]
    matcher: str = ""
    scale: float = 1.0
    """Of a histogram, that of its boundaries."""
    outer: str = "sum"

    def text(self, matchers: Sequence[str], seconds: int) -> str:
        """Return one value for each target: `max` drops what is there several times, and engines add up."""
        inside = ",".join(part for part in (*matchers, self.matcher) if part)
        by = (*TARGET, *(("le",) if self.kind == "histogram" else ()))
        each = f"{_FUNCTIONS[self.kind]}({self.metric}{{{inside}}}[{seconds}s])"
        return f"{self.outer} by ({', '.join(by)}) (max by ({', '.join((*by, *self.engines))}) ({each}))"


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    title: str
    source: Mapping[str, str]
    anchor: str
    """A metric that every such server exports from its start."""
    models: Sequence[str]
    """Labels that have the served model, the first of them that is there."""
    engines: Sequence[str]
    figures: Mapping[str, Sequence[Mapping[str, Any]]]
    running_includes_waiting: bool = False

    def discovery(self, matchers: Sequence[str], seconds: int) -> str:
        """Return a query for the targets that such a server answers at, with its models.

        `up` is Prometheus' own and has the target's labels alone: a series whose scrape honored labels of its text
        counts only where a target is really called so.
        """
        inside = ",".join(part for part in matchers if part)
        on = ", ".join(TARGET)
        return (
            f"count by ({', '.join((*TARGET, *self.models))}) (count_over_time({self.anchor}{{{inside}}}[{seconds}s]) "
            f"and on ({on}) max_over_time(up{{{inside}}}[{seconds}s]))"
        )

    def queries(self) -> Iterator[Query]:
        for figure, names in self.figures.items():
            yield from self._named(figure, figure, KINDS[figure], names)
        for most, figure in MOST.items():
            if figure in self.figures:
                yield from self._named(most, figure, "most", self.figures[figure])

    def _named(self, name: str, figure: str, kind: Kind, names: Sequence[Mapping[str, Any]]) -> Iterator[Query]:
        outer = "avg" if figure == "kv_cache" and kind == "gauge" else "max" if name == "kv_most" else "sum"
        for place, entry in enumerate(names):
            yield Query(
                figure=name,
                server=self.name,
                rank=place,
                metric=str(entry["metric"]),
                kind=kind if kind == "most" else entry.get("kind", kind),
                engines=self.engines,
                matcher=str(entry.get("matcher", "")),
                scale=float(entry.get("scale", 1.0)),
                outer=str(entry.get("outer", outer)),
            )


@cache
def servers() -> tuple[Server, ...]:
    """Return the servers in the order in which their figures count where one pod has several."""
    text = (Path(__file__).parent / "servers.yaml").read_text(encoding="utf-8")
    return tuple(Server(**entry) for entry in yaml.safe_load(text))
