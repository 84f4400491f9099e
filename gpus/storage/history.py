"""History of devices: five-minute roll-ups for some days, hourly ones for longer, from `gpus.storage.rollups`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.models import GpuPacked
from gpus.storage import codec, sharding

FINE, COARSE = 300, 3600
"""Seconds of a bucket, and of its roll-up."""


def buckets(
    cluster_id: UUID, start: datetime, end: datetime, *, nodes: Collection[str] | None = None
) -> dict[Device, list[Bucket]]:
    """Those of [start, end), sorted by start; as far back as SETPOINT_GPU_BUCKET_DAYS. One query.

    A GPU that MIG splits is there beside its instances, with what is the board's: power, energy, heat, clocks.
    """
    return _read(cluster_id, FINE, start, end, nodes)


def hours(
    cluster_id: UUID, start: datetime, end: datetime, *, nodes: Collection[str] | None = None
) -> dict[Device, list[Bucket]]:
    """The same in steps of an hour, each of the fives in it, as far back as SETPOINT_GPU_HOUR_DAYS. One query.

    The holder is given where it was the same in every five minutes of the hour.
    """
    return _read(cluster_id, COARSE, start, end, nodes)


def latest(
    cluster_id: UUID, start: datetime, end: datetime, metric: Metric, *, steps: int
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the metric's sum and covered seconds by UUID and instance. One query.

    Both are of the newest `steps` five-minute steps of [start, end) that are stored; seconds are those that readings
    cover.
    """
    rows = GpuPacked.objects.filter(cluster=cluster_id, seconds=FINE, start__gte=start, start__lt=end)
    by_start: dict[datetime, list[bytes]] = defaultdict(list)
    for began, data in rows.order_by().values_list("start", "data").iterator(200):
        by_start[began].append(bytes(data))
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for began in sorted(by_start)[-steps:]:
        for data in by_start[began]:
            for uuid, instance, covered, value in codec.column(data, metric):
                total, seconds = sums.get((uuid, instance), (0.0, 0.0))
                sums[uuid, instance] = total + value, seconds + covered * FINE
    return sums


def _read(
    cluster_id: UUID, seconds: int, start: datetime, end: datetime, nodes: Collection[str] | None
) -> dict[Device, list[Bucket]]:
    rows = GpuPacked.objects.filter(cluster=cluster_id, seconds=seconds, start__gte=start, start__lt=end)
    wanted = None
    if nodes is not None:
        wanted = frozenset(nodes)
        where = Q(pk__in=())
        for of, numbers in sharding.of_all(wanted):
            where |= Q(of=of, shard__in=numbers)
        rows = rows.filter(where)
    by_device: dict[Device, list[Bucket]] = defaultdict(list)
    for began, data in rows.order_by("start", "of", "shard").values_list("start", "data").iterator(200):
        for device, bucket in codec.unpack(bytes(data), began, wanted):
            by_device[device].append(bucket)
    return dict(by_device)
