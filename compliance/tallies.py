"""How many nodes stood how, over time: a row only when a count changed, so a quiet fleet writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db.models import OuterRef, Subquery

from clusters.models import Cluster, Node
from common.clock import now
from compliance import selectors
from compliance.models import Tally

Counts = dict[str, int]


def note(cluster: Cluster) -> bool:
    """Store how the cluster's nodes stand now, if that is news. Returns whether it was."""
    counts = selectors.count(Node.objects.filter(cluster=cluster))
    last = Tally.objects.filter(cluster=cluster).order_by("-at").first()
    if last is not None and all(getattr(last, name) == n for name, n in counts.items()):
        return False
    Tally.objects.create(cluster=cluster, at=now(), **counts)
    return True


def course(clusters: Iterable[UUID], *, start: datetime, end: datetime, points: int) -> list[tuple[datetime, Counts]]:
    """The sum of these clusters at `points` instants from start to end. Two queries, whatever their number.

    Before a cluster's first row it counts as nothing.
    """
    ids = list(clusters)
    fields = ("cluster_id", "at", *selectors.SHOWN)
    rows = list(Tally.objects.filter(cluster__in=ids, at__gt=start, at__lte=end).order_by("at").values_list(*fields))
    newest = Tally.objects.filter(cluster=OuterRef("pk"), at__lte=start).order_by("-at").values("pk")[:1]
    before = Cluster.objects.filter(pk__in=ids).annotate(newest=Subquery(newest)).values("newest")
    standing = {
        cluster: tuple(counts) for cluster, _, *counts in Tally.objects.filter(pk__in=before).values_list(*fields)
    }
    out, step, at = [], (end - start) / max(points - 1, 1), 0
    for number in range(points):
        instant = start + step * number if number < points - 1 else end
        while at < len(rows) and rows[at][1] <= instant:
            cluster, _, *counts = rows[at]
            standing[cluster] = tuple(counts)
            at += 1
        sums = [sum(column) for column in zip(*standing.values(), strict=True)] or [0] * len(selectors.SHOWN)
        out.append((instant, dict(zip(selectors.SHOWN, sums, strict=True))))
    return out
