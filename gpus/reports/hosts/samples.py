"""Readings of hosts from Prometheus: several queries at once, all before one deadline; none is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gpus.reports.hosts.kubelets import Evictions
from gpus.reports.hosts.queries import Query, alternatives
from gpus.reports.hosts.targets import Target
from gpus.telemetry.expressions import AT_ONCE, Expressions, Row, Span, Unanswered

Steps = list[float | None]
"""One value for each step, the oldest first; None: unknown."""
Parts = Mapping[tuple[str, ...], Steps]
"""By the labels that tell several series of one host apart."""


@dataclass(slots=True)
class HostReading:
    """Figures of one host as Prometheus gave them, by the query's name."""

    span: Span
    parts: dict[str, dict[tuple[str, ...], Steps]] = field(default_factory=lambda: defaultdict(dict))
    lacks: dict[str, str] = field(default_factory=dict)
    """Of queries that were not answered: why."""
    evictions: Evictions | None = None
    """By the kubelet, in the whole time; None: unknown."""


def read(
    expressions: Expressions, targets: Sequence[Target], queries: Sequence[Query], span: Span
) -> dict[Target, HostReading]:
    """Read the figures of these hosts. Raises Unanswered where no query was answered at all."""
    readings = {(target.instance, target.job): HostReading(span) for target in targets}
    matcher = f'instance=~"{alternatives(dict.fromkeys(target.instance for target in targets))}"'
    for query, rows in _answers(expressions, queries, matcher, span):
        for reading in readings.values():
            if isinstance(rows, Unanswered):
                reading.lacks[query.name] = str(rows)
        for labels, points in () if isinstance(rows, Unanswered) else rows:
            key = labels.get("instance", ""), labels.get("job", "")
            if key in readings:
                readings[key].parts[query.name][_part(query, labels)] = _steps(points, span)
    return {target: readings[target.instance, target.job] for target in targets}


def add_gpus(expressions: Expressions, reading: HostReading, queries: Sequence[Query], uuids: Collection[str]) -> None:
    """Add figures of a host's GPUs, which are known by their UUIDs."""
    matcher = f'UUID=~"{alternatives(sorted(uuids))}"'
    try:
        for query, rows in _answers(expressions, queries, matcher, reading.span):
            if isinstance(rows, Unanswered):
                reading.lacks[query.name] = str(rows)
                continue
            for labels, points in rows:
                reading.parts[query.name][_part(query, labels)] = _steps(points, reading.span)
    except Unanswered as error:
        reading.lacks |= dict.fromkeys((query.name for query in queries), str(error))


def _answers(
    expressions: Expressions, queries: Sequence[Query], matcher: str, span: Span
) -> list[tuple[Query, list[Row] | Unanswered]]:
    """Raises Unanswered where none was answered."""
    matchers = [matcher, expressions.selector]

    def answer(query: Query) -> list[Row] | Unanswered:
        text = query.text(matchers, span.step)
        try:
            return expressions.over(text, span) if span.steps > 1 else expressions.at(text, span.end)
        except Unanswered as error:
            return error

    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="host") as pool:
        answers = list(zip(queries, pool.map(answer, queries), strict=True))
    failures = [rows for _, rows in answers if isinstance(rows, Unanswered)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    return answers


def _part(query: Query, labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in query.by)


def _steps(points: Sequence[tuple[float, float]], span: Span) -> Steps:
    first, values = span.ends[0], [None] * span.steps
    steps: Steps = list(values)
    for when, value in points:
        place = round((when - first) / span.step)
        if 0 <= place < span.steps:
            steps[place] = value
    return steps
