"""Readings of inference servers by pod: which there are, then each figure of those at once, all before one deadline."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import mean
from typing import NamedTuple, TypeVar

from gpus.reports.hosts.queries import alternatives
from gpus.reports.inference import catalog
from gpus.reports.inference.catalog import TARGET, Query, Server
from gpus.reports.inference.quantiles import Buckets
from gpus.telemetry.expressions import AT_ONCE, Expressions, Labels, Row, Span, Unanswered

MOST_TEXT = 120
"""Of a model's name: the pod's owner writes it."""
MOST_VALUE = 1e15
"""A larger one is none of these figures: a pod may export any number."""
EVERYWHERE = ('namespace!=""', 'pod!=""')
Item = TypeVar("Item")
Combine = Callable[[Sequence[float]], float]
_ABOUT: Mapping[str, tuple[float, Combine]] = {"kv_cache": (1.0, mean), "kv_most": (1.0, max)}
"""The most that a figure can be, and how the several servers of one pod make one; others add up."""
OVER_TIME = ("tokens_out", "running", "waiting", "kv_cache", "kv_used", "kv_blocks", "ttft")


class PodName(NamedTuple):
    namespace: str
    pod: str


class Target(NamedTuple):
    namespace: str
    pod: str
    instance: str
    job: str

    @property
    def name(self) -> PodName:
        return PodName(self.namespace, self.pod)


@dataclass(slots=True)
class PodReading:
    """Figures of one pod by step; most views have one step."""

    servers: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    values: dict[str, list[float | None]] = field(default_factory=dict)
    """Means of gauges, rates of counters a second."""
    buckets: dict[str, list[Buckets]] = field(default_factory=dict)
    """Rates of a histogram's buckets a second."""

    def value(self, figure: str, step: int = 0) -> float | None:
        values = self.values.get(figure)
        return values[step] if values else None


@dataclass(slots=True)
class Readings:
    pods: dict[PodName, PodReading]
    lacks: dict[str, str] = field(default_factory=dict)
    """Of figures whose query was not answered: why."""
    targets: dict[str, set[Target]] = field(default_factory=dict)
    """By server."""


def matchers(names: Collection[PodName]) -> list[str]:
    """Return label matchers that all of these pods of one namespace have, and few others: addresses have a limit."""
    spaces = sorted({name.namespace for name in names})
    first, last = min(name.pod for name in names), max(name.pod for name in names)
    prefix = "".join(letter for letter, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    pod = f'pod=~"{alternatives([prefix])}.*"' if prefix else 'pod!=""'
    return [f'namespace="{spaces[0]}"' if len(spaces) == 1 else 'namespace!=""', pod]


def read(expressions: Expressions, within: Sequence[str], window: Span, only: Collection[str] = ()) -> Readings:
    """Read every figure over the window, which has one step. Raises Unanswered where no question about servers was.

    `only`: names of servers to look for.
    """
    inside = [*within, expressions.selector]
    readings = Readings({})

    def ask(server: Server) -> list[Row]:
        return expressions.at(server.discovery(inside, window.step), window.end)

    answers = _at_once([server for server in catalog.servers() if not only or server.name in only], ask)
    failures = [rows for _, rows in answers if isinstance(rows, Unanswered)]
    if len(failures) == len(answers):
        raise failures[0]
    for server, rows in answers:
        if isinstance(rows, Unanswered):
            readings.lacks[server.title] = str(rows)
            continue
        for labels, _ in rows:
            _discover(readings, server, labels)
    _read_figures(expressions, inside, readings, window, catalog.KINDS.keys() | catalog.MOST.keys())
    return readings


def over_time(expressions: Expressions, within: Sequence[str], known: Readings, span: Span) -> Readings:
    """Read the figures of OVER_TIME by step, of the targets that are known."""
    readings = Readings({name: PodReading() for name in known.pods}, targets=known.targets)
    _read_figures(expressions, [*within, expressions.selector], readings, span, OVER_TIME)
    return readings


def _discover(readings: Readings, server: Server, labels: Labels) -> None:
    target = _target(labels)
    if target is None:
        return
    readings.targets.setdefault(server.name, set()).add(target)
    pod = readings.pods.setdefault(target.name, PodReading())
    pod.servers.add(server.name)
    model = next((labels[name] for name in server.models if labels.get(name)), "")
    if model:
        pod.models.add("".join(letter for letter in model if letter.isprintable())[:MOST_TEXT])


def _target(labels: Labels) -> Target | None:
    target = Target(*(labels.get(name, "") for name in TARGET))
    return target if target.namespace and target.pod else None


def _read_figures(
    expressions: Expressions, inside: Sequence[str], readings: Readings, span: Span, figures: Collection[str]
) -> None:
    present = [server for server in catalog.servers() if server.name in readings.targets]
    queries = [query for server in present for query in server.queries() if query.figure in figures]

    def ask(query: Query) -> list[Row]:
        text = query.text(inside, span.step)
        return expressions.over(text, span) if span.steps > 1 else expressions.at(text, span.end)

    for query, rows in _at_once(queries, ask):
        if isinstance(rows, Unanswered):
            readings.lacks[query.figure] = str(rows)
        elif query.kind == "histogram":
            _add_buckets(readings, query, rows, span)
        else:
            _add_values(readings, query, rows, span)


def _at_once(several: Sequence[Item], ask: Callable[[Item], list[Row]]) -> list[tuple[Item, list[Row] | Unanswered]]:
    def answer(item: Item) -> list[Row] | Unanswered:
        try:
            return ask(item)
        except Unanswered as error:
            return error

    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="inference") as pool:
        return list(zip(several, pool.map(answer, several), strict=True))


def _add_values(readings: Readings, query: Query, rows: Iterable[Row], span: Span) -> None:
    """Add a figure under one name. Of pods that have it under a better one already, nothing is taken."""
    known = readings.targets[query.server]
    most, combine = _ABOUT.get(query.figure, (MOST_VALUE, sum))
    by_instance: dict[PodName, dict[str, list[float | None]]] = defaultdict(dict)
    for labels, points in rows:
        target = _target(labels)
        if target is None or target not in known or query.figure in readings.pods[target.name].values:
            continue
        steps: list[float | None] = [None] * span.steps
        for place, value in _placed(points, span):
            if 0 <= value <= most:
                steps[place] = value * query.scale
        of_pod = by_instance[target.name]
        # Several jobs of a Prometheus may scrape the same address: its values are there twice, and count once.
        of_pod[target.instance] = _each(max, [of_pod.get(target.instance, steps), steps])
    for name, instances in by_instance.items():
        together = _each(combine, list(instances.values()))
        if any(value is not None for value in together):
            readings.pods[name].values[query.figure] = together


def _each(combine: Combine, several: Sequence[Sequence[float | None]]) -> list[float | None]:
    columns = [[value for value in column if value is not None] for column in zip(*several, strict=True)]
    return [combine(column) if column else None for column in columns]


def _add_buckets(readings: Readings, query: Query, rows: Iterable[Row], span: Span) -> None:
    known = readings.targets[query.server]
    by_target: dict[Target, list[dict[float, float]]] = {}
    for labels, points in rows:
        target, boundary = _target(labels), _boundary(labels.get("le", ""), query.scale)
        if target is None or target not in known or boundary is None:
            continue
        if query.figure in readings.pods[target.name].buckets:
            continue
        steps = by_target.setdefault(target, [{} for _ in range(span.steps)])
        for place, value in _placed(points, span):
            if 0 <= value <= MOST_VALUE:
                steps[place][boundary] = value
    by_instance: dict[tuple[PodName, str], list[dict[float, float]]] = {}
    for target, steps in by_target.items():
        key = (target.name, target.instance)
        if key not in by_instance or _all(steps) > _all(by_instance[key]):
            by_instance[key] = steps
    for (name, _), steps in sorted(by_instance.items(), key=lambda entry: entry[0]):
        kept = readings.pods[name].buckets.setdefault(query.figure, [{} for _ in range(span.steps)])
        for place, buckets in enumerate(steps):
            kept[place] = _together(kept[place], buckets)


def _together(first: Buckets, second: Buckets) -> Buckets:
    if not first or not second:
        return first or second
    return {boundary: first[boundary] + second[boundary] for boundary in first if boundary in second}


def _all(steps: Sequence[Buckets]) -> float:
    return sum(buckets.get(math.inf, 0.0) for buckets in steps)


def _boundary(text: str, scale: float) -> float | None:
    try:
        boundary = float(text)
    except ValueError:
        return None
    return None if math.isnan(boundary) else boundary * scale


def _placed(points: Sequence[tuple[float, float]], span: Span) -> Iterable[tuple[int, float]]:
    first = span.ends[0]
    for when, value in points:
        place = round((when - first) / span.step)
        if 0 <= place < span.steps:
            yield place, value
