"""Pods that hold GPUs idle: since when, how many GPU-hours so far, and at what cost."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import OuterRef, Subquery, Value
from django.db.models.functions import Concat

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, GpuPod
from compliance.reports.exports import cell
from gpus.models import IdleHolding, TelemetrySource
from gpus.showback import prices
from gpus.showback.prices import PriceBook
from gpus.storage import idle_tracking

COLUMNS = (
    "cluster_name", "node_name", "namespace", "pod", "owner", "gpus", "share", "idle_since", "idle_seconds", "is_young",
    "gpu_hours", "cost", "currency", "power", "has_xid", "started_at",
)  # fmt: skip
"""Of the export."""


@dataclass(frozen=True, slots=True)
class IdlePod:
    """A pod all of whose GPUs do nothing, as of the last reading."""

    row: IdleHolding
    cluster: Cluster | None
    read_at: datetime
    gpu_hours: float
    """Whole GPUs' time that readings cover, since `row.since`."""
    cost: Decimal | None
    """In SETPOINT_GPU_CURRENCY; None where the model has no price."""
    owner: str
    started_at: datetime | None
    """Of the pod."""
    job_key: str = ""
    """GpuJob.key of its job; empty: not known."""

    @property
    def lasts(self) -> timedelta:
        return self.read_at - self.row.since

    @property
    def is_young(self) -> bool:
        """Idle for so short a time that it may be loading."""
        return self.lasts < timedelta(minutes=settings.SETPOINT_GPU_IDLE_MINUTES)


@dataclass(frozen=True, slots=True)
class IdleTotals:
    """Totals of the holdings that are not young."""

    pods: int
    gpus: int
    gpu_hours: float
    cost: Decimal | None

    @property
    def currency(self) -> str:
        return settings.SETPOINT_GPU_CURRENCY


def idle(
    user: User, sources: Iterable[TelemetrySource], clusters: Mapping[UUID, Cluster], *, of: Cluster | None = None
) -> list[IdlePod]:
    """The most GPU-hours first; only where telemetry says how things are now. Two queries."""
    read = {source.cluster_id: source.read_at for source in sources if source.is_current}
    rows = restrict(IdleHolding.objects.filter(is_seen=True, cluster__in=read), user)
    if of is not None:
        rows = rows.filter(cluster=of)
    same = {"cluster": OuterRef("cluster"), "node_name": OuterRef("node_name")}
    pods = GpuPod.objects.filter(**same, namespace=OuterRef("namespace"), name=OuterRef("pod")).order_by("pk")
    rows = rows.annotate(
        owner=Concat(Subquery(pods.values("owner_kind")[:1]), Value(" "), Subquery(pods.values("owner_name")[:1])),
        started_at=Subquery(pods.values("started_at")[:1]),
        job_key=Subquery(pods.values("job_key")[:1]),
    )
    book = prices.book()
    held_pods = [_held(row, read[row.cluster_id], clusters, book) for row in rows.order_by("pk")]
    return sorted(
        held_pods, key=lambda pod: (-pod.gpu_hours, pod.row.since, pod.row.namespace, pod.row.pod, pod.row.pk)
    )


def together(pods: Iterable[IdlePod]) -> IdleTotals:
    old = [pod for pod in pods if not pod.is_young]
    costs = [pod.cost for pod in old if pod.cost is not None]
    cost = sum(costs, Decimal(0)) if costs else None
    return IdleTotals(len(old), sum(pod.row.gpus for pod in old), sum(pod.gpu_hours for pod in old), cost)


def _held(row: Any, read_at: Any, clusters: Mapping[UUID, Cluster], book: PriceBook) -> IdlePod:
    hours = idle_tracking.so_far(row, read_at) / 3600
    price = book.mean(row.model, row.cluster_id, row.since, read_at)
    cost = None if price is None else Decimal(hours) * price
    owner = (row.owner or "").strip()
    place = clusters.get(row.cluster_id)
    return IdlePod(row, place, read_at, hours, cost, owner, row.started_at, row.job_key or "")


def record(pod: IdlePod) -> dict[str, Any]:
    """Return the record that REST and exported files have."""
    return {
        "cluster": pod.row.cluster_id,
        "cluster_name": pod.cluster.name if pod.cluster else "",
        "node": pod.row.node_id,
        "node_name": pod.row.node_name,
        "namespace": pod.row.namespace,
        "pod": pod.row.pod,
        "owner": pod.owner,
        "gpus": pod.row.gpus,
        "share": round(pod.row.share, 4),
        "idle_since": pod.row.since,
        "idle_seconds": round(pod.lasts.total_seconds()),
        "is_young": pod.is_young,
        "gpu_hours": round(pod.gpu_hours, 4),
        "cost": None if pod.cost is None else float(round(pod.cost, 2)),
        "currency": "" if pod.cost is None else settings.SETPOINT_GPU_CURRENCY,
        "power": pod.row.watts,
        "has_xid": pod.row.has_xid,
        "started_at": pod.started_at,
    }


def as_csv(pods: Iterable[IdlePod]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for pod in pods:
        written = record(pod)
        writer.writerow([_cell(written[name]) for name in COLUMNS])
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds").replace("+00:00", "Z")
    return str(value) if isinstance(value, float) else cell(value)
