"""Roll-ups of queues: quota, use, what waits and what is held idle, in steps of five minutes and an hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, Sum

from clusters.models import GpuPod
from gpus.models import IdleHolding, QueueStep, TelemetrySource, WorkloadWait
from gpus.storage.accumulator import COARSE, COVERS_SECONDS, FINE, instant

Key = tuple[str, str]
"""System and queue."""
SUMS = (
    "recorded", "pending", "pending_gpus", "used", "used_recorded", "quota", "quota_recorded", "idle", "idle_recorded",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueLook:
    """A queue in one reading; None: not known, or without a limit."""

    system: str
    name: str
    used: int | None
    quota: int | None


def record(
    cluster_id: UUID,
    looks: Iterable[QueueLook],
    at: datetime,
    before: datetime | None,
    cluster_queues: Mapping[tuple[str, str], str],
    *,
    reach: float = COVERS_SECONDS,
) -> None:
    """Add one reading, which speaks for the time since the one before it, `reach` at most. In a transaction."""
    spans = list(_spans(at, before, reach))
    by_key = {(look.system, look.name): look for look in looks}
    if not spans or not by_key:
        return
    waits, idle = _pending(cluster_id), idle_gpus(cluster_id, cluster_queues)
    stored = QueueStep.objects.filter(
        cluster=cluster_id, start__in={start for _, start, _ in spans}, seconds__in=(FINE, COARSE)
    )
    rows = {(row.system, row.queue, row.seconds, row.start): row for row in stored}
    changed: dict[tuple[str, str, int, datetime], QueueStep] = {}
    for (system, name), look in by_key.items():
        gangs, gpus = waits.get((system, name), (0, 0))
        values = {"used": look.used, "quota": look.quota}
        values["idle"] = None if idle is None else idle.get((system, name), 0)
        for seconds, start, length in spans:
            key = (system, name, seconds, start)
            row = rows.get(key) or changed.get(key)
            if row is None:
                row = QueueStep(cluster_id=cluster_id, system=system, queue=name, seconds=seconds, start=start)
            row.recorded += length
            row.pending += gangs * length
            row.pending_gpus += gpus * length
            for what, value in values.items():
                if value is not None:
                    setattr(row, what, getattr(row, what) + value * length)
                    setattr(row, f"{what}_recorded", getattr(row, f"{what}_recorded") + length)
            changed[key] = row
    QueueStep.objects.bulk_create(
        changed.values(),
        batch_size=500,
        update_conflicts=True,
        unique_fields=["cluster", "system", "queue", "seconds", "start"],
        update_fields=SUMS,
    )


def _spans(at: datetime, before: datetime | None, reach: float) -> Iterator[tuple[int, datetime, float]]:
    """Yield seconds and start of each step that the reading speaks for, and for how long."""
    if before is None:
        return
    end = at.timestamp()
    begin = max(before.timestamp(), end - reach)
    for seconds in (FINE, COARSE):
        start = begin // seconds * seconds
        while start < end:
            length = min(end, start + seconds) - max(begin, start)
            if length > 0:
                yield seconds, instant(start), length
            start += seconds


def _pending(cluster_id: UUID) -> dict[Key, tuple[int, int]]:
    """Return gangs that wait, and their GPUs."""
    rows = WorkloadWait.objects.filter(cluster=cluster_id, admitted_at=None, ended_at=None, is_active=True)
    counted = rows.order_by().values("system", "queue").annotate(gangs=Count("pk"), wanted=Sum("gpus"))
    return {(row["system"], row["queue"]): (row["gangs"], row["wanted"]) for row in counted}


def idle_gpus(
    cluster_id: UUID, cluster_queues: Mapping[tuple[str, str], str], *, least: timedelta = timedelta()
) -> dict[Key, int] | None:
    """Return GPUs that each queue's pods hold idle for at least so long; None where telemetry is not current."""
    counts: dict[Key, int] = defaultdict(int)
    holdings = idle_pods(cluster_id, cluster_queues, least=least)
    if holdings is None:
        return None
    for holding in holdings:
        if holding.key is not None:
            counts[holding.key] += holding.gpus
    return dict(counts)


@dataclass(frozen=True, slots=True)
class IdlePod:
    key: Key | None
    """None: of no queue that is known."""
    node: str
    namespace: str
    name: str
    gpus: int
    parts: Mapping[str, int]
    """Of `gpus`, MIG instances by profile."""


def idle_pods(
    cluster_id: UUID, cluster_queues: Mapping[tuple[str, str], str], *, least: timedelta = timedelta()
) -> list[IdlePod] | None:
    source = TelemetrySource.objects.filter(cluster=cluster_id).first()
    if source is None or source.read_at is None or not source.is_current:
        return None
    rows = IdleHolding.objects.filter(cluster=cluster_id, is_seen=True, since__lte=source.read_at - least)
    held = {(row.node_name, row.namespace, row.pod): row.gpus for row in rows.order_by("pk")}
    if not held:
        return []
    pods = GpuPod.objects.filter(cluster=cluster_id, node_name__in={node for node, _, _ in held}).order_by("pk")
    of_job = _by_job(cluster_id)
    listed = []
    for node, namespace, name, queue, job, parts in pods.values_list(
        "node_name", "namespace", "name", "queue", "job_key", "mig"
    ):
        if gpus := held.get((node, namespace, name)):
            listed.append(
                IdlePod(_key(namespace, queue, job, cluster_queues, of_job), node, namespace, name, gpus, parts)
            )
    return listed


def _by_job(cluster_id: UUID) -> dict[str, Key]:
    """Return the queue that admitted each job that has one."""
    rows = WorkloadWait.objects.filter(cluster=cluster_id, is_present=True, ended_at=None).exclude(admitted_at=None)
    columns = rows.exclude(job_key="").exclude(queue="").order_by("pk").values_list("job_key", "system", "queue")
    return {job: (system, queue) for job, system, queue in columns}


def _key(
    namespace: str, queue: str, job: str, cluster_queues: Mapping[tuple[str, str], str], of_job: Mapping[str, Key]
) -> Key | None:
    if (key := of_job.get(job)) is not None:
        return key
    if (namespace, queue) in cluster_queues:
        return WorkloadWait.System.KUEUE, cluster_queues[namespace, queue]
    return (WorkloadWait.System.VOLCANO, queue) if queue else None
