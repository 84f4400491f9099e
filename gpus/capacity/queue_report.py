"""Queues over a time range: how long gangs waited, by queue and by size, what queues offered and held, evictions.

A fixed number of queries for any number of workloads. Waits are those that began in the range; one that is not over
counts as at least so long as it has been (gpus.capacity.survival).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Min, Q, QuerySet, Sum

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from common.clock import now
from gpus.capacity import survival
from gpus.capacity.queue_terms import Terms
from gpus.capacity.survival import Quantile, Wait
from gpus.models import QueueStep, Waiting, WorkloadWait
from gpus.reports.ranges import TimeRange

MOST_WAITS = 100_000
"""Of a range, the latest."""
SHARES = (0.5, 0.9)
SIZES = ((1, 1, "1 GPU"), (2, 8, "2–8 GPUs"), (9, 64, "9–64 GPUs"), (65, None, "over 64 GPUs"))
"""First and last number of GPUs, and words."""
Place = tuple[UUID, str, str]
"""Cluster, system and queue."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Quantiles of some waits."""

    count: int
    admitted: int
    median: Quantile | None
    ninety: Quantile | None
    longest: Quantile | None
    """Of all of them."""

    @property
    def open(self) -> int:
        """Those that were not admitted, whether they still wait or left."""
        return self.count - self.admitted


@dataclass(frozen=True, slots=True)
class QueueLine:
    cluster: Cluster
    system: str
    queue: str
    figures: Figures
    before: Figures | None
    waiting: int
    """Now, whenever they began."""
    waiting_gpus: int
    longest: timedelta | None
    """Of those."""
    evictions: int
    used: int | None
    quota: int | None

    @property
    def name(self) -> str:
        return self.queue or ("no queue" if self.system == WorkloadWait.System.PODS else "unknown queue")


@dataclass(frozen=True, slots=True)
class SizeLine:
    words: str
    figures: Figures
    before: Figures | None


@dataclass(frozen=True, slots=True)
class Evictions:
    cluster: Cluster
    system: str
    queue: str
    reason: str
    count: int
    workloads: int


@dataclass(frozen=True, slots=True)
class Point:
    """GPUs on the average of a step; None: not recorded."""

    start: datetime
    used: float | None
    quota: float | None
    idle: float | None
    pending: float | None


@dataclass(frozen=True, slots=True)
class Report:
    window: TimeRange
    at: datetime
    clusters: Sequence[Cluster]
    """All that have queues or waits, regardless of the filter."""
    refused: Sequence[tuple[Cluster, str, str]]
    lines: Sequence[QueueLine]
    sizes: Sequence[SizeLine]
    whole: Figures
    whole_before: Figures | None
    evictions: Sequence[Evictions]
    points: Sequence[Point]
    before: Sequence[Point]
    unmeasured: int
    """Waits whose length is not known."""
    is_cut: bool

    @property
    def waiting(self) -> int:
        return sum(line.waiting for line in self.lines)

    @property
    def waiting_gpus(self) -> int:
        return sum(line.waiting_gpus for line in self.lines)

    @property
    def longest(self) -> timedelta | None:
        return max((line.longest for line in self.lines if line.longest is not None), default=None)

    @property
    def evicted(self) -> int:
        return sum(entry.count for entry in self.evictions)

    @property
    def places(self) -> list[Cluster]:
        """Clusters in which something waits now, once each."""
        return list({line.cluster.pk: line.cluster for line in self.lines if line.waiting}.values())


def of(user: User, window: TimeRange, *, cluster: str = "", queue: str = "") -> Report:
    """`cluster` and `queue` are names; empty: all. Nine queries, eleven with a comparison."""
    at = now()
    rows = list(restrict(Waiting.objects.select_related("cluster"), user).order_by("cluster__name"))
    all_clusters = {row.pk: row for row in clusters_visible_to(user).filter(waiting__isnull=False).order_by("name")}
    shown = {pk: row for pk, row in all_clusters.items() if cluster in ("", row.name)}
    waits = restrict(WorkloadWait.objects.filter(cluster__in=shown), user)
    waits = waits.filter(queue=queue) if queue else waits
    read = {row.cluster_id: min(row.read_at or at, at) for row in rows}
    current, is_cut = _waits(waits, window, read)
    before, _ = _waits(waits, window.before, read) if window.compares else ({}, False)
    evictions = _evictions(waits, window, shown)
    began = waits.filter(queued_at__gte=window.start, queued_at__lt=window.end)
    return Report(
        window=window,
        at=at,
        clusters=list(all_clusters.values()),
        refused=[(row.cluster, *pair) for row in rows if row.cluster_id in shown for pair in row.refused],
        lines=_lines(_Parts(current, before, _now(waits), _offers(rows, shown, queue), evictions), window, shown, read),
        sizes=_sizes(current, before, window),
        whole=figures([wait for _, _, wait in _flat(current)]),
        whole_before=figures([wait for _, _, wait in _flat(before)]) if window.compares else None,
        evictions=evictions,
        points=points(user, window, shown, queue),
        before=points(user, window.before, shown, queue) if window.compares else [],
        unmeasured=began.filter(is_measured=False).count(),
        is_cut=is_cut,
    )


def figures(waits: Sequence[Wait]) -> Figures:
    median, ninety = survival.quantiles(waits, SHARES)
    last = max(waits, default=None)
    longest = Quantile(last.seconds, not last.is_over) if last else None
    return Figures(len(waits), sum(wait.is_over for wait in waits), median, ninety, longest)


# ── Waits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
Waits = Mapping[Place, Sequence[tuple[int, Wait]]]
"""GPUs and wait."""


def _waits(rows: QuerySet[WorkloadWait], window: TimeRange, read: Mapping[UUID, datetime]) -> tuple[Waits, bool]:
    """`read`: when each cluster was last read; of later nothing is known of what waits."""
    began = rows.filter(queued_at__gte=window.start, queued_at__lt=window.end, is_measured=True, is_active=True)
    columns = ("cluster_id", "system", "queue", "gpus", "queued_at", "admitted_at", "ended_at")
    listed = list(began.order_by("-queued_at", "-pk").values_list(*columns)[: MOST_WAITS + 1])
    by_place: dict[Place, list[tuple[int, Wait]]] = defaultdict(list)
    for cluster, system, queue, gpus, queued, admitted, ended in listed[:MOST_WAITS]:
        until = admitted or ended or read.get(cluster, queued)
        wait = Wait(max(0.0, (until - queued).total_seconds()), admitted is not None)
        by_place[cluster, system, queue].append((gpus, wait))
    return by_place, len(listed) > MOST_WAITS


def _flat(waits: Waits) -> Iterable[tuple[Place, int, Wait]]:
    return ((place, gpus, wait) for place, listed in waits.items() for gpus, wait in listed)


def _sizes(current: Waits, before: Waits, window: TimeRange) -> list[SizeLine]:
    lines = []
    for first, last, words in SIZES:

        def of_size(waits: Waits, first: int = first, last: int | None = last) -> Figures:
            return figures([wait for _, gpus, wait in _flat(waits) if first <= gpus and (last is None or gpus <= last)])

        lines.append(SizeLine(words, of_size(current), of_size(before) if window.compares else None))
    return lines


def _now(rows: QuerySet[WorkloadWait]) -> dict[Place, tuple[int, int, datetime]]:
    open_waits = rows.filter(admitted_at=None, ended_at=None, is_active=True).order_by()
    counted = open_waits.values("cluster_id", "system", "queue").annotate(
        gangs=Count("pk"), wanted=Sum("gpus"), first=Min("queued_at")
    )
    return {
        (row["cluster_id"], row["system"], row["queue"]): (row["gangs"], row["wanted"], row["first"]) for row in counted
    }


def _offers(
    rows: Iterable[Waiting], shown: Mapping[UUID, Cluster], queue: str
) -> dict[Place, tuple[int | None, int | None]]:
    """Return what each queue holds by its scheduler's word, and its quota, as the steps of its chart have it."""
    return {
        (row.cluster_id, stored["system"], stored["name"]): (stored["held"], Terms.of(stored.get("terms", {})).quota)
        for row in rows
        if row.cluster_id in shown
        for stored in row.queues
        if queue in ("", stored["name"])
    }


@dataclass(frozen=True, slots=True)
class _Parts:
    current: Waits
    before: Waits
    waiting: Mapping[Place, tuple[int, int, datetime]]
    offers: Mapping[Place, tuple[int | None, int | None]]
    evictions: Sequence[Evictions]


def _lines(
    parts: _Parts, window: TimeRange, shown: Mapping[UUID, Cluster], read: Mapping[UUID, datetime]
) -> list[QueueLine]:
    current, before, waiting, offers = parts.current, parts.before, parts.waiting, parts.offers
    evicted: dict[Place, int] = defaultdict(int)
    for entry in parts.evictions:
        evicted[entry.cluster.pk, entry.system, entry.queue] += entry.count
    lines = []
    for place in {*current, *waiting, *offers, *evicted}:
        gangs, gpus, first = waiting.get(place, (0, 0, None))
        used, quota = offers.get(place, (None, None))
        lines.append(
            QueueLine(
                cluster=shown[place[0]],
                system=place[1],
                queue=place[2],
                figures=figures([wait for _, wait in current.get(place, ())]),
                before=figures([wait for _, wait in before.get(place, ())]) if window.compares else None,
                waiting=gangs,
                waiting_gpus=gpus,
                longest=max(read.get(place[0], first) - first, timedelta()) if first else None,
                evictions=evicted.get(place, 0),
                used=used,
                quota=quota,
            )
        )
    return sorted(lines, key=lambda line: (-line.waiting_gpus, line.cluster.name, line.system, line.queue))


def _evictions(rows: QuerySet[WorkloadWait], window: TimeRange, shown: Mapping[UUID, Cluster]) -> list[Evictions]:
    ended = rows.filter(outcome=WorkloadWait.Outcome.EVICTED, ended_at__gte=window.start, ended_at__lt=window.end)
    counted = (
        ended.order_by()
        .values("cluster_id", "system", "queue", "reason")
        .annotate(total=Sum("evictions"), workloads=Count("uid", distinct=True))
    )
    listed = [
        Evictions(shown[row["cluster_id"]], row["system"], row["queue"], row["reason"], row["total"], row["workloads"])
        for row in counted
    ]
    return sorted(listed, key=lambda entry: (-entry.count, entry.cluster.name, entry.queue, entry.reason))


# ── Quota and use ─────────────────────────────────────────────────────────────────────────────────────────────────────
def points(user: User, window: TimeRange, shown: Mapping[UUID, Cluster], queue: str) -> list[Point]:
    """Return the steps of the range that have something recorded; sums over the queues. One query."""
    rows = restrict(QueueStep.objects.filter(cluster__in=shown), user)
    rows = rows.filter(seconds=window.seconds, start__gte=window.start, start__lt=window.end)
    rows = rows.filter(queue=queue) if queue else rows
    known: dict[str, Any] = {
        f"{name}_gpus": Sum(F(name) / F(f"{name}_recorded"), filter=Q(**{f"{name}_recorded__gt": 0}))
        for name in ("used", "quota", "idle")
    }
    known["waiting_gpus"] = Sum(F("pending_gpus") / F("recorded"), filter=Q(recorded__gt=0))
    by_step: dict[datetime, list[dict[str, Any]]] = defaultdict(list)
    summed: Iterable[Any] = rows.order_by("start").values("start").annotate(**known)
    for row in summed:
        by_step[window.start + (row["start"] - window.start) // window.step * window.step].append(row)
    return [
        Point(start, *(_mean(steps, name) for name in ("used_gpus", "quota_gpus", "idle_gpus", "waiting_gpus")))
        for start, steps in sorted(by_step.items())
    ]


def _mean(steps: Iterable[Mapping[str, Any]], name: str) -> float | None:
    values = [step[name] for step in steps if step[name] is not None]
    return sum(values) / len(values) if values else None
