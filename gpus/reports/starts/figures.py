"""Figures of starts: medians and percentiles of each part, and nodes against the others. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

LEAST_FOR_P95 = 20
"""Of fewer, the 95th percentile is the longest."""
LEAST_OF_NODE, LEAST_OF_PEERS = 3, 3
"""Starts that a node, and the others together, need for a comparison."""
READY = "ready"
NOTHING = "–"


class Start(NamedTuple):
    """Values of a PodStart that figures are made of."""

    cluster: UUID
    group: str
    node: str
    image: str
    outcome: str
    reason: str
    has_probe: bool
    restarts: int
    dropped: int
    queue: int | None
    prepare: int | None
    load: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of one part of many starts. Quantiles are values that were measured, the nearest rank of each."""

    count: int
    median: float | None
    p95: float | None
    """None where fewer than LEAST_FOR_P95 were measured."""
    longest: int | None

    @property
    def median_words(self) -> str:
        return words(self.median)

    @property
    def p95_words(self) -> str:
        return words(self.p95)

    @property
    def longest_words(self) -> str:
        return words(self.longest)


@dataclass(frozen=True, slots=True)
class Figures:
    starts: int
    ready: int
    without_probe: int
    """Of those that were ready: they have no load time."""
    restarted: int
    """Of those that were ready with a probe: a container restarted before, and the first run's times are gone."""
    dropped: int
    """Spans that clocks contradicted."""
    queue: Part
    prepare: Part
    load: Part

    @property
    def never_ready(self) -> int:
        return self.starts - self.ready


@dataclass(slots=True)
class _Seconds:
    queue: list[int] = field(default_factory=list)
    prepare: list[int] = field(default_factory=list)
    load: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node's load times against those of the same image on the other nodes of its cluster."""

    cluster: UUID
    node: str
    starts: int
    """That could be compared."""
    median: float
    ratio: float
    """Median of its load times, each by the median of the same image elsewhere."""

    @property
    def median_words(self) -> str:
        return words(self.median)


def words(seconds: float | None) -> str:
    """Return the time with its seconds up to an hour, for a start of 70 s is no start of 110 s; a dash for None."""
    if seconds is None:
        return NOTHING
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds % 1 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def of(starts: Iterable[Start]) -> Figures:
    count = ready = without_probe = restarted = dropped = 0
    seconds = _Seconds()
    for start in starts:
        count += 1
        dropped += start.dropped
        if start.outcome == READY:
            ready += 1
            without_probe += not start.has_probe
            restarted += start.has_probe and start.restarts > 0
        for values, value in (
            (seconds.queue, start.queue),
            (seconds.prepare, start.prepare),
            (seconds.load, start.load),
        ):
            if value is not None:
                values.append(value)
    parts = (_part(values) for values in (seconds.queue, seconds.prepare, seconds.load))
    return Figures(count, ready, without_probe, restarted, dropped, *parts)


def grouped(starts: Iterable[Start]) -> dict[tuple[UUID, str], list[Start]]:
    groups: dict[tuple[UUID, str], list[Start]] = defaultdict(list)
    for start in starts:
        groups[start.cluster, start.group].append(start)
    return groups


def slower_nodes(starts: Iterable[Start]) -> list[NodeLine]:
    """Return nodes by how long they load against the others, the slowest first.

    Only the same image in the same cluster is compared: another model loads longer without being slower. No node is
    its own peer.
    """
    by_image: dict[tuple[UUID, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for start in starts:
        if start.load is not None and start.node and start.image:
            by_image[start.cluster, start.image][start.node].append(start.load)
    ratios: dict[tuple[UUID, str], list[tuple[float, int]]] = defaultdict(list)
    for (cluster, _), by_node in by_image.items():
        for node, usual in _usual_elsewhere(by_node).items():
            ratios[cluster, node] += [(load / usual, load) for load in by_node[node]]
    lines = [
        NodeLine(
            cluster,
            node,
            len(compared),
            statistics.median(load for _, load in compared),
            statistics.median(ratio for ratio, _ in compared),
        )
        for (cluster, node), compared in ratios.items()
        if len(compared) >= LEAST_OF_NODE
    ]
    return sorted(lines, key=lambda line: (-line.ratio, str(line.cluster), line.node))


def reasons(starts: Iterable[Start]) -> list[tuple[str, str, int]]:
    """Return outcome, reason and number of starts that were never ready, the most first."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for start in starts:
        if start.outcome != READY:
            counts[start.outcome, start.reason] += 1
    return sorted(((*key, count) for key, count in counts.items()), key=lambda line: (-line[2], line[:2]))


def _usual_elsewhere(by_node: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return by node the median of all other nodes, where they have enough starts and it is not 0."""
    everything = sorted((load, node) for node, loads in by_node.items() for load in loads)
    places: dict[str, list[int]] = defaultdict(list)
    for place, (_, node) in enumerate(everything):
        places[node].append(place)
    usual: dict[str, float] = {}
    for node, own in places.items():
        left = len(everything) - len(own)
        if left < LEAST_OF_PEERS:
            continue
        low, high = (everything[_without(own, rank)][0] for rank in ((left - 1) // 2, left // 2))
        if low + high:
            usual[node] = (low + high) / 2
    return usual


def _without(own: Sequence[int], rank: int) -> int:
    """Return the place of the entry with this rank among those that are not `own`, which are places in order."""
    for place in own:
        if place > rank:
            break
        rank += 1
    return rank


def _part(values: list[int]) -> Part:
    if not values:
        return Part(0, None, None, None)
    values.sort()
    p95 = values[math.ceil(0.95 * len(values)) - 1] if len(values) >= LEAST_FOR_P95 else None
    return Part(len(values), statistics.median(values), p95, values[-1])
