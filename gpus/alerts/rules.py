"""GPU alert rules over the latest samples, as `notices` evaluates them.

An old sample, or a device missing from the last reading, is no evidence in either direction.
Each evaluation costs a fixed number of queries; filtering is left to the database where possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import F, Sum
from django.urls import reverse

from clusters.models import Node
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind
from gpus.alerts import hardware, heat, idle, links, memory, nodes
from gpus.alerts.subjects import device, devices, of_current_samples
from gpus.alerts.subjects import hardware as boards
from gpus.metrics import xids
from gpus.metrics.samples import XidEvidence
from gpus.models import TelemetrySource

XID, LOST = "fatal-xid", "telemetry-lost"


def rules() -> Iterable[AlertRule]:
    """Yield every rule over what exporters report of GPUs."""
    yield from idle.rules()
    yield from nodes.rules()
    yield from memory.rules()
    yield AlertRule(
        XID,
        "Fatal XID",
        "A GPU reports an XID that needs a reset, a restart of the node or the vendor{lasting}.",
        Severity.CRITICAL,
        fatal_xids,
        closes_after=timedelta(hours=1),
        order=20,
    )
    yield from heat.rules()
    yield from hardware.rules()
    yield from links.rules()
    yield AlertRule(
        LOST,
        "Telemetry lost",
        "The GPUs of a cluster have not been read{lasting}, counted from when their last reading is 3 minutes old.",
        Severity.WARNING,
        telemetry_lost,
        opens_after=timedelta(minutes=2),
        closes_after=timedelta(minutes=1),
        order=50,
    )


# ── The source itself ─────────────────────────────────────────────────────────────────────────────────────────────────
def telemetry_lost(cluster_id: UUID, _threshold: float) -> RuleResult:
    source = TelemetrySource.objects.filter(cluster=cluster_id, is_enabled=True).select_related("cluster").first()
    if source is None or source.is_current:
        return RuleResult()
    gpus = (
        Node.objects.present().filter(cluster=cluster_id).aggregate(n=Sum(F("gpu_count") - F("gpu_virtual")))["n"] or 0
    )
    if not gpus and source.read_at is None:
        return RuleResult()  # nothing was ever there to be read
    last = f"last read {source.read_at:%Y-%m-%d %H:%M} UTC" if source.read_at else "never read yet"
    why = f" {source.sentence}" if source.state == TelemetrySource.State.FAILED and source.sentence else ""
    return RuleResult(
        [
            AlertCondition(
                SubjectKind.CLUSTER,
                str(cluster_id),
                source.cluster.name,
                f"Its GPUs are not read: {last}.{why}",
                mend="See the data quality panel of the cluster's GPU page for what does not answer.",
                link=reverse("gpus:cluster", args=[cluster_id]),
                figures={"gpus": gpus},
            )
        ]
    )


@of_current_samples
def fatal_xids(cluster_id: UUID, _threshold: float) -> RuleResult:
    conditions = []
    for row in boards(cluster_id).exclude(xids=[]):
        current = xids.current(row.xids)
        fatal = [xid for xid in xids.reported(current) if xid.advice.severity == "bad"]
        if fatal:
            names = ", ".join(f"XID {xid.code}{f' ({xid.name})' if xid.name else ''}" for xid in fatal)
            sticks = all(evidence == XidEvidence.LAST for _, _, evidence, *_ in current)
            when = " Time unknown: the last one since the driver was loaded." if sticks else ""
            mend = " ".join(dict.fromkeys(xid.advice.what for xid in fatal))
            conditions.append(device(row, f"{names}.{when}", mend, xids=",".join(str(xid.code) for xid in fatal)))
    return devices(cluster_id, conditions)
