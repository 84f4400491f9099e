"""What the pages show, gathered. A fixed number of queries each, whatever the number of GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from accounts.models import User
from accounts.permissions import Role, may
from clusters.models import Cluster, Node
from clusters.selectors import clusters_visible_to
from gpus import selectors, states, trust, xids
from gpus.models import TelemetrySource
from gpus.samples import Metric
from gpus.selectors import Gpu, GpuNode
from gpus.states import Tally

MOST_IDLE = 50
ROWS = 60
"""Nodes of the table behind the heatmap, a page."""
RATIO, NUMBER = "ratio", "number"
METRICS: dict[str, tuple[str, str, float, str]] = {
    "busy": ("Busy", RATIO, 1, "%"),
    "engine": ("Engine", RATIO, 1, "%"),
    "sm": ("SM", RATIO, 1, "%"),
    "tensor": ("Tensor", RATIO, 1, "%"),
    "memory": ("Memory", RATIO, 1, "%"),
    "power": ("Power", NUMBER, 700, "W"),
    "temperature": ("Temperature", NUMBER, 90, "°C"),
}
"""By name: word, kind, what the darkest step means, unit."""


def figure(gpu: Gpu, metric: str) -> int | None:
    """In the unit of METRICS, rounded; None where it was not reported, or not lately."""
    value = memory_share(gpu.values) if metric == "memory" else gpu.values.get(metric)
    if value is None or not gpu.is_current:
        return None
    return round(value * 100) if METRICS[metric][1] == RATIO else round(value)


def step(gpu: Gpu, metric: str) -> str:
    """The class of its colour: nine steps, and none where there is no figure."""
    value = figure(gpu, metric)
    top = 100 if METRICS[metric][1] == RATIO else METRICS[metric][2]
    return "n" if value is None else str(min(8, max(0, int(value * 9 / top))))


def memory_share(values: dict[str, float]) -> float | None:
    used, free = values.get(Metric.MEMORY_USED), values.get(Metric.MEMORY_FREE)
    if used is None or free is None or not used + free:
        return None
    return used / (used + free)


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


def model_of(node: GpuNode) -> str:
    return node.product.replace("-", " ") or "unknown model"


def _note(source: TelemetrySource | None, tally: Tally) -> str:
    """What is wrong with a cluster's telemetry, in few words; empty where nothing is."""
    worst = next(iter(trust.points(source, tally)), None)
    return worst.title if worst and worst.severity != "ok" else ""


def sick(found: Iterable[GpuNode], clusters: dict[Any, Cluster]) -> list[dict[str, Any]]:
    """GPUs whose last XID asks for more than a look at the application, the worst first."""
    rows = []
    for node in found:
        for gpu in node.gpus:
            serious = [one for one in xids.seen(gpu.xids) if one.advice.severity != "ok"]
            if gpu.is_current and serious:
                rows.append({"node": node, "gpu": gpu, "xid": serious[0], "cluster": clusters.get(node.cluster_id)})
    return rows[:MOST_IDLE]


def cluster(user: User, found: Cluster, metric: str) -> dict[str, Any]:
    source = selectors.sources(user).filter(cluster=found).first()
    rows = selectors.nodes(user, [source] if source else [], found)
    tally = selectors.total(rows)
    idle = selectors.held_idle(user, rows, {found.pk: found})
    word, _kind, top, unit = METRICS[metric]
    return {
        "cluster": found,
        "source": source,
        "tally": tally,
        "nodes": rows,
        "models": sorted({model_of(node) for node in rows}),
        "metric": {"name": metric, "word": word, "top": 100 if unit == "%" else int(top), "unit": unit},
        "metrics": [(name, parts[0]) for name, parts in METRICS.items()],
        "cells": cells(rows, metric),
        "idle": idle[:MOST_IDLE],
        "idle_count": len(idle),
        "sick": sick(rows, {found.pk: found}),
        "points": trust.points(source, tally),
        "reads": trust.reads(source) if source else "",
        "may_set_source": may(user, Role.ADMIN, found.scopes),
    }


def cells(rows: Iterable[GpuNode], metric: str) -> dict[str, Any]:
    """For the heatmap: nodes as [key, name, [GPU, …]], a GPU as [name, state, figure, busy, power, °C, pod, XID].

    Pods stand once, in `pods`; a GPU has the number of its first, or -1. GPUs that the API server offers and telemetry
    does not know are counted behind their node's.
    """
    pods: dict[str, int] = {}
    nodes = []
    top = METRICS[metric][2]
    for node in rows:
        gpus = []
        for gpu in node.gpus:
            pod = "/".join(gpu.holders[0][:2]) if gpu.holders else ""
            number = pods.setdefault(pod, len(pods)) if pod else -1
            found = xids.seen(gpu.xids)
            numbers = [figure(gpu, name) for name in (metric, "busy", "power", "temperature")]
            gpus.append([gpu.name, states.STATES.index(gpu.state), *numbers, number, found[0].code if found else 0])
        nodes.append([node.pk, node.name, gpus, max(0, node.offered - len(node.gpus))])
    return {
        "nodes": nodes,
        "pods": list(pods),
        "states": list(states.STATES),
        "top": 100 if METRICS[metric][1] == RATIO else top,
        "unit": METRICS[metric][3],
        "word": METRICS[metric][0],
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
        "sick": [one for one in tiles if one["xids"]],
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
