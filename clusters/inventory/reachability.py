"""Reachability of a cluster: whether it answers, since when, and as of when its rows are true."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from clusters.models import Cluster

SEEN_EVERY = timedelta(seconds=2)
"""How often observed_at is written; a busy fleet must not cost a write per event."""


def seen_at(cluster: Cluster, at: datetime) -> None:
    """Its rows were true at `at`. Written at most every SEEN_EVERY, never backwards."""
    due = Q(observed_at=None) | Q(observed_at__lte=at - SEEN_EVERY)
    Cluster.objects.filter(due, pk=cluster.pk).update(observed_at=at)


def reached(cluster: Cluster, *, at: datetime) -> bool:
    """Record that the cluster answers. Returns whether that is news."""
    news = ~Q(reach=Cluster.Reach.REACHABLE) | ~Q(reach_reason="") | Q(refused_since__isnull=False)
    fields = {"reach": Cluster.Reach.REACHABLE, "reach_since": at, "reach_reason": "", "refused_since": None}
    return bool(Cluster.objects.filter(news, pk=cluster.pk).update(**fields))


def lost(cluster: Cluster, reason: str, *, since: datetime, is_refused: bool = False) -> bool:
    """Record that it does not answer, or not to these credentials (`is_refused`): its nodes are unknown since then.

    Returns whether that is news.
    """
    reason = reason.replace("\0", "")[:500]
    clusters = Cluster.objects.filter(pk=cluster.pk)
    if is_refused:
        clusters.filter(refused_since=None).update(refused_since=since)
    else:
        clusters.filter(refused_since__isnull=False).update(refused_since=None)
    fresh = clusters.exclude(reach=Cluster.Reach.UNREACHABLE)
    if fresh.update(reach=Cluster.Reach.UNREACHABLE, reach_since=since, reach_reason=reason):
        return True
    clusters.filter(reach=Cluster.Reach.UNREACHABLE).exclude(reach_reason=reason).update(reach_reason=reason)
    return False
