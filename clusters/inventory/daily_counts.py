"""Daily counts of each cluster's nodes by axis, kept so that pages can say which way it goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count

from clusters.models import Cluster, ClusterDay, Node
from common import hooks
from common.clock import now

KEPT_DAYS = 400
SHOWN_DAYS = 14


@dataclass(frozen=True, slots=True)
class Trend:
    """One value of one axis, day by day, oldest first; None for a day without a count."""

    days: tuple[date, ...]
    counts: tuple[int | None, ...]
    totals: tuple[int | None, ...]
    """Of all values of the axis that day, but "unassigned": what has no target is held to none."""

    @property
    def is_drawn(self) -> bool:
        """Return whether there is a trend to draw: one point is none."""
        return sum(count is not None for count in self.counts) > 1


def count_all() -> int:
    """Today's row of every cluster, written again. Rows written. Twice does no harm."""
    at = now()
    clusters = list(Cluster.objects.all())
    counts = counts_of(clusters)
    rows = [
        ClusterDay(
            cluster=cluster,
            day=at.date(),
            nodes=sum(counts[cluster.pk]["health"].values()),
            counts=counts[cluster.pk],
            counted_at=at,
        )
        for cluster in clusters
    ]
    ClusterDay.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["cluster", "day"], update_fields=["nodes", "counts", "counted_at"]
    )
    ClusterDay.objects.filter(day__lt=at.date() - timedelta(days=KEPT_DAYS)).delete()
    return len(rows)


def counts_of(clusters: Sequence[Cluster]) -> dict[UUID, dict[str, dict[str, int]]]:
    """Count nodes by cluster, axis and value. Health is counted here, the other axes by the apps above."""
    out: dict[UUID, dict[str, dict[str, int]]] = {cluster.pk: {"health": {}} for cluster in clusters}
    present = Node.objects.present().filter(cluster__in=list(out))
    ready: dict[Any, dict[bool, int]] = defaultdict(dict)
    for cluster_id, is_ready, count in (
        present.order_by().values("cluster", "is_ready").annotate(n=Count("pk")).values_list("cluster", "is_ready", "n")
    ):
        ready[cluster_id][is_ready] = count
    for cluster in clusters:
        of_cluster = ready[cluster.pk]
        same = cluster.health_of_all
        health = (
            {same: sum(of_cluster.values())}
            if same
            else {"degraded": of_cluster.get(False, 0), "healthy": of_cluster.get(True, 0)}
        )
        out[cluster.pk]["health"] = {name: count for name, count in health.items() if count}
    for cluster_id, axis, counts in hooks.cluster_counts(clusters):
        out[cluster_id][axis] = {name: count for name, count in counts.items() if count}
    return out


def trend(cluster_ids: Sequence[UUID], axis: str, value: str, *, days: int = SHOWN_DAYS) -> Trend:
    """Nodes of these clusters with this value, summed day by day. One query."""
    span = _span(days)
    return _summed(span, _counted(cluster_ids, axis, value, span))


def trends(cluster_ids: Sequence[UUID], axis: str, value: str, *, days: int = SHOWN_DAYS) -> dict[UUID, Trend]:
    """The same for each cluster by itself. One query."""
    span = _span(days)
    rows = defaultdict(list)
    for row in _counted(cluster_ids, axis, value, span):
        rows[row[0]].append(row)
    return {pk: _summed(span, rows[pk]) for pk in cluster_ids}


def together(trends: Iterable[Trend]) -> Trend:
    """Several trends over the same days as one."""
    rows = list(trends)
    span = rows[0].days if rows else _span(SHOWN_DAYS)
    counts, totals = (
        tuple(_sum_of(day) for day in zip(*(getattr(row, name) for row in rows), strict=True))
        for name in ("counts", "totals")
    )
    return Trend(span, counts or (None,) * len(span), totals or (None,) * len(span))


def _sum_of(numbers: Iterable[int | None]) -> int | None:
    """Sum the counts that are known; None if none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _span(days: int) -> tuple[date, ...]:
    today = now().date()
    return tuple(today - timedelta(days=back) for back in reversed(range(days)))


def _counted(
    cluster_ids: Sequence[UUID], axis: str, value: str, span: Sequence[date]
) -> list[tuple[UUID, date, int, int]]:
    """(cluster, day, nodes with the value, nodes that the axis judges)."""
    rows = ClusterDay.objects.filter(cluster__in=list(cluster_ids), day__gte=span[0])
    stored = rows.values_list("cluster", "day", "counts")
    axes = ((pk, day, counts.get(axis, {})) for pk, day, counts in stored)
    return [
        (pk, day, counts.get(value, 0), sum(counts.values()) - counts.get("unassigned", 0)) for pk, day, counts in axes
    ]


def _summed(span: tuple[date, ...], rows: Sequence[tuple[UUID, date, int, int]]) -> Trend:
    counts: dict[date, int] = {}
    totals: dict[date, int] = {}
    for _, day, count, total in rows:
        counts[day] = counts.get(day, 0) + count
        totals[day] = totals.get(day, 0) + total
    return Trend(span, tuple(counts.get(day) for day in span), tuple(totals.get(day) for day in span))
