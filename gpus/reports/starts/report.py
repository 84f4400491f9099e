"""Start times over days: by group, by node, and why starts were never over. The page and REST show the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from accounts.models import User
from clusters import objects
from clusters.models import Cluster, Node, Pool
from clusters.reports.selectors import clusters_visible_to
from common.clock import now
from common.errors import Invalid
from gpus.reports.starts import figures, selectors
from gpus.reports.starts.figures import Figures, NodeLine, Start
from gpus.storage.node_snapshot import model_name

DAYS = (1, 7, 30)
DEFAULT_DAYS = 7
GROUPS: Mapping[str, str] = {
    "image": "Image",
    "namespace": "Namespace",
    "model": "Model label",
    "pool": "Node pool",
    "gpu": "Model of GPU",
}
DEFAULT_GROUP = "image"
MOST_STARTS = 50_000
"""Of one report; the latest count."""
MOST_LINES, MOST_NODES, MOST_REASONS = 100, 20, 20
NO_POOL, NO_NODE = "no pool", "on no node"
_OF_ROW = ("image", "namespace", "model")
_COLUMNS = (
    "cluster", "node_name", "image", "outcome", "reason", "has_probe", "restarts", "dropped", "queue_seconds",
    "prepare_seconds", "load_seconds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    cluster: str = ""
    """Its name."""
    days: int = DEFAULT_DAYS
    by: str = DEFAULT_GROUP


@dataclass(frozen=True, slots=True)
class Line:
    cluster: Cluster
    name: str
    """Empty where the pods do not tell."""
    figures: Figures


@dataclass(frozen=True, slots=True)
class SlowNode:
    cluster: Cluster
    line: NodeLine
    node: int | None
    """Its row; None where it is gone."""


@dataclass(frozen=True, slots=True)
class Report:
    query: Query
    since: datetime
    until: datetime
    clusters: Sequence[Cluster]
    """All that the person sees."""
    whole: Figures
    lines: Sequence[Line]
    """The most starts first; MOST_LINES at most."""
    more_lines: int
    nodes: Sequence[SlowNode]
    """The slowest first; MOST_NODES at most."""
    compared: int
    """Nodes with enough starts to be compared."""
    reasons: Sequence[tuple[str, str, int]]
    is_cut: bool


def parse(params: Mapping[str, str]) -> Query:
    """Return what an address asks for. Raises Invalid, by `days` and `by`."""
    errors: dict[str, list[str]] = {}
    days, by = params.get("days", "").strip(), params.get("by", "").strip()
    if days and days not in map(str, DAYS):
        errors["days"] = [f"Write one of {', '.join(map(str, DAYS))}."]
    if by and by not in GROUPS:
        errors["by"] = [f"There is no such group; there are {', '.join(GROUPS)}."]
    if errors:
        raise Invalid("Those are no start times that there are.", fields=errors)
    cluster = params.get("cluster", "").strip()[:253]
    return Query(cluster, int(days) if days else DEFAULT_DAYS, by or DEFAULT_GROUP)


def of(user: User, query: Query) -> Report:
    """Read the starts in a fixed number of queries at any size."""
    until = now()
    since = until - timedelta(days=query.days)
    clusters = {cluster.pk: cluster for cluster in clusters_visible_to(user).order_by("name")}
    rows = selectors.visible_to(user).select_related(None).filter(ended_at__gt=since)
    if query.cluster:
        rows = rows.filter(cluster__name=query.cluster)
    own = query.by if query.by in _OF_ROW else "image"
    values = list(rows.order_by("-ended_at", "-pk").values_list(own, *_COLUMNS)[: MOST_STARTS + 1])
    group = _grouping(query.by, {row[1] for row in values})
    starts = [Start(row[1], group(row[1], row[2], row[0]), *row[2:]) for row in values[:MOST_STARTS]]
    lines = [
        Line(clusters[pk], name, figures.of(members))
        for (pk, name), members in figures.grouped(starts).items()
        if pk in clusters
    ]
    lines.sort(key=lambda line: (-line.figures.starts, line.cluster.name, line.name))
    slower = figures.slower_nodes(starts)
    return Report(
        query,
        since,
        until,
        list(clusters.values()),
        figures.of(starts),
        lines[:MOST_LINES],
        max(0, len(lines) - MOST_LINES),
        _slow_nodes(clusters, slower[:MOST_NODES]),
        len(slower),
        figures.reasons(starts)[:MOST_REASONS],
        len(values) > MOST_STARTS,
    )


def _grouping(by: str, clusters: set[Any]) -> Callable[[Any, str, str], str]:
    """Return the group of a start, from its cluster, its node, and what its row tells.

    A pool and a model of GPU are those that the node has now, or had when it was last there.
    """
    if by not in ("pool", "gpu"):
        return lambda cluster, node, own: own
    columns = ("cluster", "name", "gpu_product", "labels")
    nodes = Node.objects.filter(cluster__in=clusters, gpu_count__gt=0).order_by("pk").values_list(*columns)
    names: dict[tuple[Any, str], str] = {}
    pools = list(Pool.objects.filter(cluster__in=clusters).order_by("name")) if by == "pool" else []
    for cluster, name, product, labels in nodes:
        if by == "gpu":
            names[cluster, name] = model_name(product)
            continue
        of_node = (pool for pool in pools if pool.cluster_id == cluster)
        names[cluster, name] = (
            ", ".join(pool.name for pool in of_node if objects.selects(pool.selector, labels)) or NO_POOL
        )
    unknown = NO_POOL if by == "pool" else ""
    return lambda cluster, node, own: names.get((cluster, node), unknown) if node else NO_NODE


def _slow_nodes(clusters: Mapping[Any, Cluster], lines: Sequence[NodeLine]) -> list[SlowNode]:
    names = {line.node for line in lines}
    rows = Node.objects.present().filter(cluster__in={line.cluster for line in lines}, name__in=names)
    known = {(cluster, name): pk for cluster, name, pk in rows.values_list("cluster", "name", "pk")}
    return [
        SlowNode(clusters[line.cluster], line, known.get((line.cluster, line.node)))
        for line in lines
        if line.cluster in clusters
    ]
