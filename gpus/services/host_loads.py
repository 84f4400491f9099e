"""Hosts with slow disks or tasks that wait for I/O, read once a minute from each cluster's Prometheus for the alerts.

Prometheus leaves out what is below the lowest limit that people may set, so that of a healthy cluster nothing is read
but a count. A node that was high and reports nothing any more is lost, not well.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from clusters.models import Cluster, Node
from common.clock import now
from gpus.models import HostLoad, TelemetrySource
from gpus.reports.hosts import targets
from gpus.reports.hosts.limits import LEAST_OPERATIONS
from gpus.reports.hosts.queries import NO_DISK, OF_TARGET, alternatives
from gpus.reports.hosts.targets import HOSTNAME, HostName
from gpus.telemetry import factory, quoting
from gpus.telemetry.expressions import Expressions, Unanswered
from gpus.telemetry.source import Unreadable

log = logging.getLogger(__name__)
LATENCY, PRESSURE = FIGURES = ("latency", "pressure")
FLOORS: Mapping[str, float] = {LATENCY: 0.02, PRESSURE: 0.02}
"""Seconds of an operation, and share of the time: the lowest limits that people may set."""
REPORTS: Mapping[str, str] = {
    LATENCY: "node_disk_reads_completed_total", PRESSURE: "node_pressure_io_waiting_seconds_total",
}  # fmt: skip
"""A counter that each target has of which the figure can be told."""
EVERY = timedelta(seconds=60)
SECONDS = 10.0
"""For all that one reading asks."""
MOST = 200
"""Targets of one figure, the highest of them."""
RATE = "5m"
_BY = f"by ({', '.join(OF_TARGET)})"
Target = tuple[str, str]
"""instance and job."""
Load = tuple[float, str, str]
"""Value, and for a latency its disk and read or write."""


def reconcile() -> None:
    """Each cluster has a row; one query where they all do."""
    missing = Cluster.objects.filter(host_load=None).values_list("pk", flat=True)
    if new := [HostLoad(cluster_id=pk) for pk in missing]:
        HostLoad.objects.bulk_create(new, ignore_conflicts=True)  # another worker may be faster


def due() -> list[int]:
    rows = HostLoad.objects.filter(due_at__lte=now()).order_by("due_at", "pk")
    return list(rows.values_list("pk", flat=True)[:200])


def refresh(pk: int) -> bool:
    """Read one cluster, if it is due: of two workers one does. Waits on the network: hold no transaction."""
    at = now()
    if not HostLoad.objects.filter(pk=pk, due_at__lte=at).update(due_at=at + EVERY):
        return False
    row = HostLoad.objects.get(pk=pk)
    source = TelemetrySource.objects.filter(cluster=row.cluster_id).select_related("cluster").first()
    changes: dict[str, Any]
    try:
        changes = {"sentence": "", "has_source": True, "read_at": at, **_read(row, source)}
    except Unreadable as error:
        changes = {"sentence": _quoted(str(error), source), "has_source": False}
    except Unanswered as error:
        changes = {"sentence": _quoted(str(error), source), "has_source": True}
    except Exception:
        log.exception("reading the hosts of cluster %s failed", row.cluster_id)
        changes = {"sentence": "Setpoint itself failed while it read this; its log says how."}
    HostLoad.objects.filter(pk=pk).update(**changes)
    return True


def _read(row: HostLoad, source: TelemetrySource | None) -> dict[str, Any]:
    """Raises Unreadable, Unanswered."""
    if source is None or not source.is_enabled:
        raise Unreadable("The cluster's telemetry source is switched off.")
    expressions = factory.expressions(source, seconds=SECONDS)
    try:
        by_figure = {LATENCY: _latencies(expressions), PRESSURE: _pressures(expressions)}
        reporting = {figure: _count(expressions, REPORTS[figure]) for figure in FIGURES}
        nodes = _nodes(expressions, row, by_figure.values())
        high = {figure: _by_node(by_figure[figure], nodes) for figure in FIGURES}
        lost = {figure: _lost(expressions, row, figure, high[figure]) for figure in FIGURES}
    finally:
        expressions.close()
    return {"high": high, "lost": lost, "reporting": reporting}


# ── Queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _selected(metric: str, *matchers: str) -> str:
    return f"{metric}{{{','.join(part for part in matchers if part)}}}"


def _latencies(expressions: Expressions) -> dict[Target, Load]:
    """Return the slowest disk and operation of each target that has one above the floor."""
    out: dict[Target, Load] = {}
    by, disk = f"by ({', '.join((*OF_TARGET, 'device'))})", f'device!~"{NO_DISK}"'
    for kind in ("read", "write"):
        seconds = _selected(f"node_disk_{kind}_time_seconds_total", disk, expressions.selector)
        operations = _selected(f"node_disk_{kind}s_completed_total", disk, expressions.selector)
        rate = f"(max {by} (rate({operations}[{RATE}])) >= {LEAST_OPERATIONS:g})"
        query = f"topk({MOST}, max {by} (rate({seconds}[{RATE}])) / {rate} >= {FLOORS[LATENCY]:g})"
        for labels, points in expressions.at(query, now()):
            target, value = (labels.get("instance", ""), labels.get("job", "")), points[-1][1] if points else math.nan
            if value >= FLOORS[LATENCY] and value > out.get(target, (0.0, "", ""))[0]:
                out[target] = (value, labels.get("device", "")[:64], kind)
    return out


def _pressures(expressions: Expressions) -> dict[Target, Load]:
    waited = _selected(REPORTS[PRESSURE], expressions.selector)
    query = f"topk({MOST}, max {_BY} (rate({waited}[{RATE}])) >= {FLOORS[PRESSURE]:g})"
    return {
        (labels.get("instance", ""), labels.get("job", "")): (points[-1][1], "", "")
        for labels, points in expressions.at(query, now())
        if points and points[-1][1] >= FLOORS[PRESSURE]
    }


def _count(expressions: Expressions, metric: str) -> int:
    query = f"count(max {_BY} (rate({_selected(metric, expressions.selector)}[{RATE}])))"
    return next((int(points[-1][1]) for _, points in expressions.at(query, now()) if points), 0)


# ── Nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _nodes(expressions: Expressions, row: HostLoad, of: Iterable[Collection[Target]]) -> dict[Target, str]:
    """Return the nodes with GPUs of these targets, by whole names."""
    instances = sorted({instance for of_figure in of for instance, _ in of_figure if instance})
    if not instances:
        return {}
    rows = Node.objects.present().filter(cluster=row.cluster_id, gpu_count__gt=0).order_by()
    hosts = [HostName(name, str(labels.get(HOSTNAME, ""))) for name, labels in rows.values_list("name", "labels")]
    query = targets.of_instances(instances[: 2 * MOST], expressions.selector)
    return targets.nodes_of([labels for labels, _ in expressions.at(query, now())], hosts)


def _by_node(loads: Mapping[Target, Load], nodes: Mapping[Target, str]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for target, (value, disk, kind) in loads.items():
        node = nodes.get(target)
        if node is not None and value > out.get(node, [0.0])[0]:
            out[node] = [round(value, 6), disk, kind, *target]
    return out


def _lost(expressions: Expressions, row: HostLoad, figure: str, high: Collection[str]) -> dict[str, list[str]]:
    """Return nodes that were high, or lost, and whose target reports nothing now, with the target."""
    before = {node: load[3:5] for node, load in row.high.get(figure, {}).items()} | row.lost.get(figure, {})
    gone = {node: target for node, target in before.items() if node not in high}
    if not gone:
        return {}
    matcher = f'instance=~"{alternatives(sorted({instance for instance, _ in gone.values()}))}"'
    query = f"max {_BY} (rate({_selected(REPORTS[figure], matcher, expressions.selector)}[{RATE}]))"
    there = {(labels.get("instance", ""), labels.get("job", "")) for labels, _ in expressions.at(query, now())}
    return {node: target for node, target in gone.items() if tuple(target) not in there}


def _quoted(text: str, source: TelemetrySource | None) -> str:
    return (quoting.quoted(text, quoting.secrets(source)) if source else text)[:500]
