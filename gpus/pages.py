"""What the pages show, gathered. A fixed number of queries each, whatever the number of GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from accounts.models import User
from accounts.permissions import Role, may
from clusters.models import Cluster, Node
from clusters.selectors import clusters_visible_to
from gpus import health, heatmap, selectors, trust, xids
from gpus.heatmap import Wish, figure, model_of
from gpus.models import TelemetrySource
from gpus.samples import Metric
from gpus.selectors import Gpu, GpuNode
from gpus.states import Tally

MOST_IDLE = 50
ROWS = 60
"""Nodes of the table behind the heatmap, a page."""


def fleet(user: User) -> dict[str, Any]:
    """`/gpus/`: the funnel, by cluster and by model, and who holds GPUs idle."""
    sources = {source.cluster_id: source for source in selectors.sources(user)}
    found = selectors.nodes(user, sources.values())
    clusters = {cluster.pk: cluster for cluster in clusters_visible_to(user)}
    by_cluster: dict[Any, Tally] = defaultdict(Tally)
    by_model: dict[str, Tally] = defaultdict(Tally)
    total = Tally()
    for node in found:
        counted = node.tally
        for tally in (by_cluster[node.cluster_id], by_model[model_of(node)], total):
            tally.add(counted)
    rows = [
        {"cluster": clusters[pk], "tally": tally, "source": sources.get(pk), "note": _note(sources.get(pk), tally)}
        for pk, tally in by_cluster.items()
        if pk in clusters
    ]
    idle = selectors.held_idle(user, found, clusters)
    return {
        "tally": total,
        "clusters": sorted(rows, key=lambda row: (-row["tally"].held_idle, -row["tally"].total, row["cluster"].name)),
        "models": sorted(by_model.items(), key=lambda item: (-item[1].total, item[0])),
        "without": [cluster for pk, cluster in sorted(clusters.items()) if pk not in by_cluster],
        "idle": idle[:MOST_IDLE],
        "idle_count": len(idle),
        "idle_gpus": total.held_idle,
        "sick": sick(found, clusters),
        "nodes": len(found),
    }


def _note(source: TelemetrySource | None, tally: Tally) -> str:
    """What is wrong with a cluster's telemetry, in few words; empty where nothing is."""
    worst = next(iter(trust.points(source, tally)), None)
    return worst.title if worst and worst.severity != "ok" else ""


def sick(found: Iterable[GpuNode], clusters: dict[Any, Cluster]) -> list[dict[str, Any]]:
    """GPUs whose last XID asks for more than a look at the application, the worst first."""
    rows = []
    for node in found:
        for gpu in node.gpus:
            if not gpu.xids:
                continue
            serious = [one for one in xids.seen(gpu.xids) if one.advice.severity != "ok"]
            if gpu.is_current and serious:
                rows.append({"node": node, "gpu": gpu, "xid": serious[0], "cluster": clusters.get(node.cluster_id)})
    return rows[:MOST_IDLE]


def cluster(user: User, found: Cluster, asked: Wish) -> dict[str, Any]:
    source = selectors.sources(user).filter(cluster=found).first()
    rows = selectors.nodes(user, [source] if source else [], found)
    tally = selectors.total(rows)
    idle = selectors.held_idle(user, rows, {found.pk: found})
    pools = list(found.pools.all())
    parts = heatmap.parts(rows, asked, heatmap.places(user, found, asked, pools))
    word, _kind, top, unit = heatmap.METRICS[asked.metric]
    return {
        "cluster": found,
        "source": source,
        "tally": tally,
        "nodes": rows,
        "models": sorted({model_of(node) for node in rows}),
        "wish": asked,
        "parts": parts,
        "shown": sum(len(part.gpus) + part.missing for part in parts),
        "metric": {"name": asked.metric, "word": word, "top": 100 if unit == "%" else int(top), "unit": unit},
        "metrics": [(asked.address(metric=name), name, about[0]) for name, about in heatmap.METRICS.items()],
        "orders": heatmap.ORDERS.items(),
        "groups": heatmap.GROUPS.items(),
        "group_word": heatmap.GROUPS[asked.group],
        "words": heatmap.WORD.items(),
        "choices": heatmap.choices(user, found, rows, pools),
        "cells": heatmap.cells(parts, asked.metric),
        "idle": idle[:MOST_IDLE],
        "idle_count": len(idle),
        "sick": sick(rows, {found.pk: found}),
        "points": trust.points(source, tally, selectors.meeting(user, found, rows)),
        "reads": trust.reads(source) if source else "",
        "may_set_source": may(user, Role.ADMIN, found.scopes),
    }


def of_node(user: User, node: Node) -> dict[str, Any] | None:
    """Tiles for one node's page; None where it has nothing to do with GPUs."""
    source = selectors.sources(user).filter(cluster=node.cluster_id).first()
    rows = selectors.nodes(user, [source] if source else [], node=node)
    if not rows:
        return None
    tiles = [tile(gpu) for gpu in rows[0].gpus]
    missing = max(0, rows[0].offered - len(rows[0].gpus))
    pods = sorted({tuple(one[:2]) for gpu in rows[0].gpus for one in gpu.holders})
    return {
        "node": node,
        "source": source,
        "is_current": bool(source and source.is_current),
        "tiles": tiles,
        "missing": missing,
        "pods": ["/".join(pod) for pod in pods],
        "health": health.of(selectors.hardware(user, node)),
        "model": rows[0].gpus[0].model if rows[0].gpus else model_of(rows[0]),
        "tally": rows[0].tally,
    }


def tile(gpu: Gpu) -> dict[str, Any]:
    used, free = gpu.values.get(Metric.MEMORY_USED), gpu.values.get(Metric.MEMORY_FREE)
    reserved = gpu.values.get(Metric.MEMORY_RESERVED, 0)
    return {
        "gpu": gpu,
        "busy": figure(gpu, "busy") if "busy" in gpu.values else figure(gpu, "engine"),
        "engine": gpu.values.get("engine"),
        "tensor": gpu.values.get("tensor"),
        "sm": gpu.values.get("sm"),
        "power": gpu.values.get("power"),
        "temperature": gpu.values.get("temperature"),
        "used": None if used is None else used / 1024**3,
        "capacity": None if used is None or free is None else (used + free + reserved) / 1024**3,
        "pods": sorted({"/".join(one[:2]) for one in gpu.holders}),
        "xids": xids.seen(gpu.xids),
    }
