"""Retention of GPU history: expired rows are deleted in small transactions, for SQLite has one writer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q

from clusters.models import Cluster, GpuJob, PodStart
from common.clock import now
from gpus.models import (
    CheckRun,
    CheckSchedule,
    GpuBand,
    GpuPacked,
    GpuUse,
    JobUse,
    NodePace,
    NodeUse,
    QueueStep,
    WorkloadWait,
)
from gpus.storage.accumulator import COARSE, FINE

AT_ONCE = 500
MOST = 20_000
"""Rows of a kind and run; beat comes again."""
MOST_JOBS = 100_000
"""Ended ones of a cluster."""
MOST_STARTS = 200_000
"""Of pods of a cluster."""
MOST_WAITS = 200_000
"""Ended ones of a cluster whose objects are gone."""
WEEK = timedelta(days=8)
"""Where nodes were used stays so long at least: the page of a team shows a week."""
UNSEEN = timedelta(days=2)
"""A pace that no look replaced for so long says nothing of its node any more."""


def forget_old() -> int:
    """Returns how many rows."""
    fine, hours, bands = (
        now() - timedelta(days=days)
        for days in (
            settings.SETPOINT_GPU_BUCKET_DAYS,
            settings.SETPOINT_GPU_HOUR_DAYS,
            settings.SETPOINT_GPU_BAND_DAYS,
        )
    )
    packed = Q(seconds=FINE, start__lt=fine) | Q(seconds=COARSE, start__lt=hours)
    old = Q(seconds=FINE, start__lt=fine) | Q(seconds=COARSE, start__lt=bands)
    of_nodes = Q(scope=GpuBand.Scope.NODE, seconds=COARSE, start__lt=hours)
    others = _forget(NodePace, Q(until__lt=now() - UNSEEN))
    # A schedule looks for the last result of a node: forgotten before its interval is over, the node would be due.
    runs = min(bands, now() - timedelta(days=CheckSchedule.MOST_DAYS))
    others += _forget(CheckRun, Q(status=CheckRun.Status.ENDED, ended_at__lt=runs))
    others += _forget(GpuUse, Q(day__lt=bands.date())) + _forget(JobUse, Q(day__lt=bands.date()))
    others += _forget(NodeUse, Q(day__lt=min(hours, now() - WEEK).date()))
    others += _forget(GpuJob, Q(ended_at__lt=bands)) + _forget_most(GpuJob, MOST_JOBS, Q())
    others += _forget(PodStart, Q(ended_at__lt=bands)) + _forget_most(PodStart, MOST_STARTS, Q())
    # The last wait of an object that is there stays: without it the object would be taken for another.
    gone = Q(is_present=False)
    others += _forget(WorkloadWait, gone & Q(ended_at__lt=bands)) + _forget_most(WorkloadWait, MOST_WAITS, gone)
    others += _forget(QueueStep, old)
    return _forget(GpuPacked, packed) + _forget(GpuBand, old | of_nodes) + others


def _forget_most(model: Any, most: int, of: Q) -> int:
    """Delete the rows that ended first where a cluster has more than `most` that ended."""
    forgotten = 0
    for cluster in Cluster.objects.order_by().values_list("pk", flat=True):
        ended = model.objects.filter(of, cluster=cluster, ended_at__isnull=False)
        kept = ended.order_by("-ended_at", "-pk").values_list("ended_at", flat=True)[most : most + 1]
        if (last := kept.first()) is not None:
            forgotten += _forget(model, of & Q(cluster=cluster, ended_at__lte=last))
    return forgotten


def _forget(model: Any, old: Q) -> int:
    forgotten = 0
    rows = model.objects.filter(old).order_by().values_list("pk", flat=True)
    while forgotten < MOST and (pks := list(rows[:AT_ONCE])):
        forgotten += model.objects.filter(pk__in=pks).delete()[0]
    return forgotten
