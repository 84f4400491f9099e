"""Alert rules over hosts of GPUs whose disks are slow, or whose tasks wait for I/O, by the cluster's Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.urls import reverse

from clusters.models import Node
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind, Threshold
from gpus.models import HostLoad
from gpus.reports.hosts import limits
from gpus.services.host_loads import FLOORS, LATENCY, PRESSURE, REPORTS

DISK, IO = "host-disk-latency", "host-io-pressure"
LASTING = timedelta(minutes=10)
MEND = "See the host on the node's page: its disks, and what the pods there read and write."


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        DISK,
        "Disk latency",
        "On a disk of a node with GPUs, an operation takes {limit} or more{lasting}, by the node exporter's figures in "
        "the cluster's Prometheus.",
        Severity.WARNING,
        partial(_judged, LATENCY, 1000),
        opens_after=LASTING,
        closes_after=LASTING,
        threshold=Threshold(
            1000 * limits.DISK_SECONDS, 1000 * FLOORS[LATENCY], 10_000, "ms", "from which a disk counts as slow"
        ),
        order=54,
    )
    yield AlertRule(
        IO,
        "I/O pressure",
        "On a node with GPUs, some task waits for I/O {limit} of the time or more{lasting}, by the kernel's pressure "
        "figures in the cluster's Prometheus.",
        Severity.WARNING,
        partial(_judged, PRESSURE, 100),
        opens_after=LASTING,
        closes_after=LASTING,
        threshold=Threshold(
            100 * limits.PRESSURE["pressure_io"], 100 * FLOORS[PRESSURE], 100, "%", "of the time that is too much"
        ),
        order=55,
    )


def _judged(figure: str, scale: float, cluster_id: UUID, threshold: float) -> RuleResult:
    """Two queries."""
    row = HostLoad.objects.filter(cluster=cluster_id).first()
    if row is not None and row.sentence and not row.has_source:
        return RuleResult(not_judged=f"Not judged: {row.sentence}", is_unjudged=True)
    if row is None or not row.is_current:
        return RuleResult(blind=row.sentence if row and row.sentence else "The hosts have not been read lately.")
    if not row.reporting.get(figure):
        why = f"Not judged: Prometheus has no {REPORTS[figure]} of this cluster."
        return RuleResult(not_judged=why, is_unjudged=True)
    high = {name: load for name, load in row.high.get(figure, {}).items() if scale * load[0] >= threshold}
    lost = row.lost.get(figure, {})
    nodes = Node.objects.present().filter(cluster=cluster_id, gpu_count__gt=0, name__in=[*high, *lost])
    conditions, unknown = [], set()
    for node in nodes.order_by("name").only("pk", "uid", "name"):
        if node.name in lost:
            unknown.add(node.uid)
        else:
            value, disk, kind, *_ = high[node.name]
            conditions.append(_condition(node, scale * float(value), str(disk), str(kind)))
    return RuleResult(conditions, frozenset(unknown))


def _condition(node: Node, value: float, disk: str, kind: str) -> AlertCondition:
    figures: dict[str, float | str]
    if disk:
        sentence = f"A {kind} takes {value:,.0f} ms on the average on its disk {disk}."
        figures = {"milliseconds": round(value, 1), "disk": disk, "operation": kind}
    else:
        sentence, figures = f"Some task waits for I/O {value:.0f} % of the time.", {"percent": round(value, 1)}
    return AlertCondition(
        SubjectKind.NODE, node.uid, node.name, sentence, mend=MEND, link=reverse("clusters:node", args=[node.pk]),
        node=node.pk, figures=figures,
    )  # fmt: skip
