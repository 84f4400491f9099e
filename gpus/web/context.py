"""Contexts of the GPU pages. A fixed number of queries each, for any number of GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.utils.http import urlencode

from accounts.models import User
from accounts.permissions import Role, may
from clusters.models import Cluster, Node
from clusters.reports.selectors import clusters_visible_to
from common.templatetags.chart_data import Series
from gpus.metrics import xids
from gpus.metrics.samples import Metric
from gpus.metrics.states import Tally
from gpus.models import GpuDevice, NodePace, TelemetrySource
from gpus.peers import reports
from gpus.reports import charts, data_quality, health, heatmap, idle_gpus, ranges, selectors, sparklines, state_bands
from gpus.reports.heatmap import HeatmapQuery, figure, model_of
from gpus.reports.ranges import TimeRange
from gpus.reports.selectors import Gpu, GpuNode
from gpus.reports.sparklines import Sparkline
from gpus.web import range_picker

MOST_IDLE = 50
MOST_PARTS = 30
ROWS = 60
"""Nodes of the table behind the heatmap, a page."""


def fleet(user: User, window: TimeRange, by: str = "cluster") -> dict[str, Any]:
    """Return the context of `/gpus/`: the funnel, state bands over time, idle holdings, and GPUs that are ill."""
    sources = {source.cluster_id: source for source in selectors.sources(user)}
    clusters = {cluster.pk: cluster for cluster in clusters_visible_to(user)}
    return {
        **funnel(user, sources, clusters),
        "sick": sick(selectors.ill(user, sources.values()), clusters),
        **held_idle(user, sources.values(), clusters),
        **over_time(user, window, by),
        "pace": {"query": ""},
    }


def funnel(user: User, sources: dict[Any, TelemetrySource], clusters: dict[Any, Cluster]) -> dict[str, Any]:
    """Return the funnel of the last readings: all, by cluster and by model. One query."""
    model_groups = selectors.groups(user, sources.values())
    by_cluster: dict[Any, Tally] = defaultdict(Tally)
    by_model: dict[str, Tally] = defaultdict(Tally)
    total = Tally()
    for group in model_groups:
        for tally in (by_cluster[group.cluster_id], by_model[group.model], total):
            tally.add(group.tally)
    rows = [
        {"cluster": clusters[pk], "tally": tally, "source": sources.get(pk), "note": _note(sources.get(pk), tally)}
        for pk, tally in by_cluster.items()
        if pk in clusters
    ]
    return {
        "tally": total,
        "clusters": sorted(rows, key=lambda row: (-row["tally"].held_idle, -row["tally"].total, row["cluster"].name)),
        "models": sorted(by_model.items(), key=lambda item: (-item[1].total, item[0])),
        "without": [cluster for pk, cluster in sorted(clusters.items()) if pk not in by_cluster],
        "nodes": sum(group.nodes for group in model_groups),
    }


def held_idle(
    user: User, sources: Iterable[TelemetrySource], clusters: dict[Any, Cluster], of: Cluster | None = None
) -> dict[str, Any]:
    idle = idle_gpus.idle(user, sources, clusters, of=of)
    return {
        "idle": idle[:MOST_IDLE],
        "idle_count": len(idle),
        "idle_sum": idle_gpus.together(idle),
        "idle_minutes": settings.SETPOINT_GPU_IDLE_MINUTES,
        "currency": settings.SETPOINT_GPU_CURRENCY,
    }


def over_time(user: User, window: TimeRange, by: str, of: Cluster | None = None) -> dict[str, Any]:
    """`by` as people write it in an address: what is unknown is the first."""
    bands = state_bands.over(user, window, by if by in state_bands.PARTS else state_bands.PARTS[0], of)
    return {"over": bands, "over_chart": charts.bands(bands), "parts": bands.parts[:MOST_PARTS]}


def _note(source: TelemetrySource | None, tally: Tally) -> str:
    """Return what is wrong with a cluster's telemetry, in few words; empty where nothing is."""
    worst = next(iter(data_quality.points(source, tally)), None)
    return worst.title if worst and worst.severity != "ok" else ""


def sick(pairs: Iterable[tuple[GpuNode | Node, Gpu]], clusters: dict[Any, Cluster]) -> list[dict[str, Any]]:
    """GPUs whose last XID asks for more than a look at the application."""
    rows = []
    for node, gpu in pairs:
        if not gpu.xids:
            continue
        serious = [xid for xid in xids.reported(gpu.xids) if xid.advice.severity != "ok"]
        if gpu.is_current and serious:
            rows.append({"node": node, "gpu": gpu, "xid": serious[0], "cluster": clusters.get(node.cluster_id)})
    return rows[:MOST_IDLE]


def cluster(user: User, row: Cluster, query: HeatmapQuery, window: TimeRange, by: str = "namespace") -> dict[str, Any]:
    source = selectors.sources(user).annotate(strays=selectors.strays()).filter(cluster=row).first()
    rows = selectors.nodes(user, [source] if source else [], row, with_labels=heatmap.needs_labels(query))
    tally = selectors.total(rows)
    pools = list(row.pools.all())
    where = heatmap.places(user, row, query, rows, pools)
    parts = heatmap.parts(rows, query, where)
    word, _kind, top, unit = heatmap.METRICS[query.metric]
    return {
        "cluster": row,
        "source": source,
        "tally": tally,
        "nodes": rows,
        "instances": sum(bool(gpu.instance) for node in rows for gpu in node.gpus),
        "models": sorted({model_of(node) for node in rows}),
        "wish": query,
        "parts_shown": parts,
        "shown": sum(len(part.gpus) + part.missing for part in parts),
        "metric": {"name": query.metric, "word": word, "top": 100 if unit == "%" else int(top), "unit": unit},
        "metrics": [(query.address(metric=name), name, about[0]) for name, about in heatmap.METRICS.items()],
        "orders": heatmap.ORDERS.items(),
        "groups": heatmap.GROUPS.items(),
        "group_word": heatmap.GROUPS[query.group],
        "words": heatmap.WORD.items(),
        "choices": heatmap.choices(user, row, where, rows, pools),
        "cells": heatmap.cells(parts, query.metric),
        "sick": sick(((node, gpu) for node in rows for gpu in node.gpus), {row.pk: row}),
        "points": data_quality.points(source, tally, selectors.meeting(rows, source.strays if source else 0)),
        "reads": data_quality.reads(source) if source else "",
        "may_set_source": may(user, Role.ADMIN, row.scopes),
        **held_idle(user, [source] if source else [], {row.pk: row}, row),
        **over_time(user, window, by, row),
        "pace": {"query": urlencode({"cluster": row.name})},
    }


def of_node(user: User, node: Node, params: Mapping[str, str]) -> dict[str, Any] | None:
    """Tiles for one node's page, with lines of the range that its address asks for; None where it has nothing to do
    with GPUs."""
    source = selectors.sources(user).filter(cluster=node.cluster_id).first()
    rows = selectors.nodes(user, [source] if source else [], node=node)
    if not rows:
        return None
    picker = range_picker.read(params, ranges.DEVICES, anchor="gpus")
    lines, window = sparklines.of_node(node.cluster_id, node.name, rows[0].gpus, picker.range)
    picker = replace(picker, range=window)
    tiles = [_tile_with_lines(gpu, lines[gpu.uuid, gpu.instance]) for gpu in rows[0].gpus]
    missing = max(0, rows[0].offered - len(rows[0].gpus))
    pods = sorted({tuple(holder[:2]) for gpu in rows[0].gpus for holder in gpu.holders})
    hardware = list(selectors.hardware(user, node))
    return {
        "node": node,
        "source": source,
        "picker": picker,
        "is_current": bool(source and source.is_current),
        "tiles": tiles,
        "missing": missing,
        "pods": ["/".join(pod) for pod in pods],
        "health": health.of_devices(hardware),
        "model": rows[0].gpus[0].model if rows[0].gpus else model_of(rows[0]),
        "tally": rows[0].tally,
        "pace": reports.of_node(_pace(hardware)),
    }


def _pace(hardware: Iterable[GpuDevice]) -> NodePace | None:
    """Return the pace of the node whose GPUs these are; loaded with them."""
    return next((getattr(gpu.node, "pace", None) for gpu in hardware), None)


def _tile_with_lines(gpu: Gpu, lines: list[Sparkline]) -> dict[str, Any]:
    series = [Series(line.kind.word, "", line.values, unit=line.kind.unit) for line in lines]
    key = f"gpu-{gpu.uuid}-{gpu.instance}"
    return tile(gpu) | {"lines": lines, "data": charts.data(key, lines[0].window, series, "gpus") if lines else ""}


def tile(gpu: Gpu) -> dict[str, Any]:
    used, free = gpu.values.get(Metric.MEMORY_USED), gpu.values.get(Metric.MEMORY_FREE)
    reserved = gpu.values.get(Metric.MEMORY_RESERVED, 0)
    return {
        "gpu": gpu,
        "busy": figure(gpu, "busy") if "busy" in gpu.values else figure(gpu, "engine"),
        "engine": gpu.values.get("engine"),
        "tensor": gpu.values.get("tensor"),
        "sm": gpu.values.get("sm"),
        "power": gpu.board_watts if gpu.instance else gpu.values.get("power"),
        "temperature": gpu.values.get("temperature"),
        "used": None if used is None else used / 1024**3,
        "capacity": None if used is None or free is None else (used + free + reserved) / 1024**3,
        "pods": sorted({"/".join(holder[:2]) for holder in gpu.holders}),
        "xids": xids.reported(gpu.xids),
    }
