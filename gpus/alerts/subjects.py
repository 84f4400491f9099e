"""Subjects of the GPU alert rules, and the text of their alerts; an old sample is no evidence of the present."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import wraps
from uuid import UUID

from django.db.models import Count, Q, QuerySet
from django.urls import reverse

from common.alerting import AlertCondition, RuleResult, SubjectKind
from common.clock import now
from gpus.metrics.nvidia import NVIDIA
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice, TelemetrySource
from gpus.storage import history

MOST_BOARDS = 1000
"""As many as one rule reports of one cluster."""
COUNTED_MINUTES = 10
"""Rises of counters are those of the newest two whole five minutes that are stored."""


def blind(cluster_id: UUID) -> str:
    """Return why this cluster's samples are out of date; empty while they are current. One query."""
    source = TelemetrySource.objects.filter(cluster=cluster_id).first()
    if source is None or not source.is_enabled:
        return "GPU telemetry is not read here."
    if not source.is_current:
        read = f"since {source.read_at:%Y-%m-%d %H:%M} UTC" if source.read_at else "yet"
        return f"The GPUs have not been read {read}."
    return ""


def of_current_samples(judge: Callable[[UUID, float], RuleResult]) -> Callable[[UUID, float], RuleResult]:
    """Let a rule judge current samples only: of others it is blind, and says why."""

    @wraps(judge)
    def rule(cluster_id: UUID, threshold: float) -> RuleResult:
        why = blind(cluster_id)
        return RuleResult(blind=why) if why else judge(cluster_id, threshold)

    return rule


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


# ── What the installation exports ─────────────────────────────────────────────────────────────────────────────────────
def exported_name(metric: Metric) -> str:
    """Return NVIDIA's name of a metric, of the older generation where it has two."""
    return next(name.raw for name in NVIDIA.values() if name.means is metric)


def not_judged(cluster_id: UUID, judged: Q, names: Iterable[str]) -> tuple[str, bool]:
    """Return why some GPUs cannot be judged, empty where all can, and whether that is so of all. One query.

    GPUs that report nothing at all are lost, which another rule tells.
    """
    counts = (
        hardware(cluster_id)
        .exclude(values={})
        .order_by()
        .aggregate(total=Count("pk"), judged=Count("pk", filter=judged))
    )
    total, lacking = counts["total"], counts["total"] - counts["judged"]
    if not lacking:
        return "", False
    gpus = f"any of {total:,} GPUs" if lacking == total else f"{lacking:,} of {total:,} GPUs"
    return f"Not judged: {' or '.join(names)} is not exported of {gpus}.", lacking == total


def unknown(cluster_id: UUID, judged: Q) -> frozenset[str]:
    """Return the GPUs that the last reading lacks, or of which it lacks what a rule judges. One query."""
    rows = GpuDevice.objects.hardware().filter(cluster=cluster_id)
    return frozenset(rows.filter(~judged | Q(missing_since__isnull=False)).order_by().values_list("uuid", flat=True))


# ── Counters ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def rises(cluster_id: UUID, metric: Metric, uuids: Collection[str]) -> Mapping[str, tuple[float, float]]:
    """Return by UUID how much a counter rose over COUNTED_MINUTES, and the seconds of it that readings cover.

    One query; none where no GPU is asked for.
    """
    if not uuids:
        return {}
    end = datetime.fromtimestamp(now().timestamp() // history.FINE * history.FINE, tz=UTC)
    start = end - 3 * timedelta(seconds=history.FINE)  # a third, for the newest may not be stored yet
    increases = history.latest(cluster_id, start, end, metric, steps=2)
    return {
        uuid: (rise, covered)
        for (uuid, instance), (rise, covered) in increases.items()
        if covered and not instance and uuid in uuids
    }
