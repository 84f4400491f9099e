"""Subjects of the GPU alert rules, and the text of their alerts; an old sample is no evidence of the present."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse

from common.alerting import AlertCondition, RuleResult, SubjectKind
from gpus.models import GpuDevice, TelemetrySource


def blind(cluster_id: UUID) -> str:
    """Return why this cluster's samples are out of date; empty while they are current. One query."""
    source = TelemetrySource.objects.filter(cluster=cluster_id).first()
    if source is None or not source.is_enabled:
        return "GPU telemetry is not read here."
    if not source.is_current:
        read = f"since {source.read_at:%Y-%m-%d %H:%M} UTC" if source.read_at else "yet"
        return f"The GPUs have not been read {read}."
    return ""


def hardware(cluster_id: UUID) -> QuerySet[GpuDevice]:
    """Return the physical GPUs in the last reading, each once."""
    rows = GpuDevice.objects.hardware().seen().filter(cluster=cluster_id)
    return rows.order_by("node_name", "index", "uuid")


def missing(cluster_id: UUID) -> frozenset[str]:
    """Devices that the last reading lacks."""
    rows = GpuDevice.objects.hardware().filter(cluster=cluster_id).exclude(missing_since=None)
    return frozenset(rows.values_list("uuid", flat=True))


def device(row: GpuDevice, sentence: str, mend: str, **figures: float | str) -> AlertCondition:
    place = f"{row.node_name or 'unknown node'} GPU {row.index}".strip()
    link = reverse("clusters:node", args=[row.node_id]) if row.node_id else ""
    return AlertCondition(
        SubjectKind.DEVICE,
        row.uuid,
        place,
        sentence,
        mend=mend,
        link=link or reverse("gpus:cluster", args=[row.cluster_id]),
        node=row.node_id,
        figures={"model": row.model, **figures},
    )


def devices(cluster_id: UUID, conditions: Iterable[AlertCondition]) -> RuleResult:
    return RuleResult(list(conditions), unknown=missing(cluster_id))
