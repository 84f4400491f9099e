"""Queries of pages and the API for clusters, nodes and pools: scoped to the viewer, counted in the database."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Count, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.people import owners
from accounts.permissions import Role, may, restrict
from clusters.models import STALE_AFTER, Cluster, GpuPod, Node, Pool
from clusters.services import pools
from common import counting, hooks
from common.clock import now

HEALTH = ("unreachable", "degraded", "unknown", "healthy")
"""Worst first."""


def clusters_visible_to(user: User) -> QuerySet[Cluster]:
    return restrict(Cluster.objects.all(), user, prefix="")


def clusters_with_counts(user: User) -> QuerySet[Cluster]:
    """Return clusters with node_count, gpu_count, gpu_allocated, not_ready, cordoned and unenrolled (without a
    NodeTuning) of present nodes; and has_pool."""
    return clusters_visible_to(user).annotate(
        node_count=_of_nodes(Count("pk")),
        gpu_count=_of_nodes(Sum("gpu_count")),
        gpu_allocated=_of_nodes(Sum("gpu_allocated")),
        not_ready=_of_nodes(Count("pk", filter=Q(is_ready=False))),
        cordoned=_of_nodes(Count("pk", filter=Q(is_cordoned=True))),
        unenrolled=_of_nodes(Count("pk", filter=Q(tuning=None))),
        has_pool=Exists(Pool.objects.filter(cluster=OuterRef("pk"))),
    )


def _of_nodes(aggregate: Any) -> Coalesce:
    present = Node.objects.present().filter(cluster=OuterRef("pk")).order_by().values("cluster")
    return Coalesce(Subquery(present.annotate(value=aggregate).values("value")), 0, output_field=IntegerField())


def health_of(cluster: Cluster) -> dict[str, int]:
    """Nodes by health of a cluster that carries the counts above."""
    counted: Any = cluster
    if same := cluster.health_of_all:
        return {same: counted.node_count}
    return {"degraded": counted.not_ready, "healthy": counted.node_count - counted.not_ready}


def numbers_of(cluster: Cluster) -> dict[str, int]:
    """The same counts by the names of counts_of()."""
    row: Any = cluster
    numbers = {"total": row.node_count, "gpus": row.gpu_count, "gpus_allocated": row.gpu_allocated}
    return dict.fromkeys(HEALTH, 0) | health_of(cluster) | numbers | {"cordoned": row.cordoned}


def nodes_visible_to(user: User) -> QuerySet[Node]:
    """Present nodes with cluster and agent's object, without the agent's long answers."""
    present = Node.objects.present().select_related("cluster", "tuning")
    return restrict(present, user).defer("tuning__status", "tuning__observed", "annotations", "conditions")


def nodes_whole(user: User) -> QuerySet[Node]:
    """The same with everything, for one node at a time; those that are gone, too."""
    return restrict(Node.objects.select_related("cluster", "tuning"), user)


def nodes_ranked(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Annotate nodes with `rank`, the smaller the worse."""
    rank = Case(
        When(is_current() & Q(is_ready=False), then=Value(0)),
        When(~is_current(), then=Value(1)),
        When(is_cordoned=True, then=Value(2)),
        default=Value(3),
        output_field=IntegerField(),
    )
    return nodes.annotate(rank=rank)


def nodes_worst_first(nodes: QuerySet[Node]) -> QuerySet[Node]:
    ranked: Any = nodes_ranked(nodes)
    ordered: QuerySet[Node] = ranked.order_by("rank", "name", "pk")
    return ordered


def worst_of(nodes: QuerySet[Node], limit: int) -> list[Node]:
    """The first few that need attention: not healthy, then the worst on the axes of rooms above, then cordoned, then
    the others. A query for each axis besides."""
    ranked = list(nodes_worst_first(nodes)[:limit])
    sick = [node for node in ranked if node.health != "healthy"]
    off = [
        node
        for axis in hooks.node_filters()
        for node in nodes_worst_first(axis.narrow(nodes, axis.values[0]))[: limit - len(sick)]
    ]
    return list({node.pk: node for node in [*sick, *off, *ranked]}.values())[:limit]


def is_current() -> Q:
    """Cluster.is_current, of a node's cluster, in SQL."""
    return Q(cluster__reach=Cluster.Reach.REACHABLE, cluster__observed_at__gt=now() - STALE_AFTER)


def is_unreachable() -> Q:
    """Match nodes whose cluster does not answer, which is more than an unknown state."""
    return Q(cluster__reach=Cluster.Reach.UNREACHABLE)


def in_health(nodes: QuerySet[Node], health: str) -> QuerySet[Node]:
    if health == "unreachable":
        return nodes.filter(is_unreachable())
    if health == "unknown":
        return nodes.exclude(is_current() | is_unreachable())
    return nodes.filter(is_current(), is_ready=health == "healthy")


def counts_of(nodes: QuerySet[Node]) -> dict[str, int]:
    """Count nodes by health, those cordoned, and their GPUs: one query."""
    counted = nodes.order_by().aggregate(
        degraded=Count("pk", filter=is_current() & Q(is_ready=False)),
        healthy=Count("pk", filter=is_current() & Q(is_ready=True)),
        unreachable=Count("pk", filter=is_unreachable()),
        total=Count("pk"),
        cordoned=Count("pk", filter=Q(is_cordoned=True)),
        gpus=Coalesce(Sum("gpu_count"), 0),
        gpus_allocated=Coalesce(Sum("gpu_allocated"), 0),
    )
    known = counted["degraded"] + counted["healthy"] + counted["unreachable"]
    return counted | {"unknown": counted["total"] - known}


@dataclass(frozen=True, slots=True)
class PoolRow:
    pool: Pool
    text: str
    """The selector as kubectl writes it."""
    count: int
    owner: str = ""
    """Name of the team that owns it."""


def pools_visible_to(user: User) -> QuerySet[Pool]:
    return restrict(Pool.objects.select_related("cluster"), user)


def pools_of(cluster: Cluster) -> tuple[list[PoolRow], dict[str, int]]:
    """Its pools, and the numbers that rooms above want counted with them: two queries, and one where any is owned."""
    rows = list(Pool.objects.filter(cluster=cluster).order_by("name"))
    contributed: dict[Hashable, QuerySet[Any]] = dict(hooks.cluster_numbers(cluster))
    counts = counting.counts_of(contributed | {pool.pk: pools.matching(pool) for pool in rows})
    numbers = {str(name): counts[name] for name in contributed}
    named: dict[str, Any] = {}
    return [
        PoolRow(pool, pools.text_of(pool), counts[pool.pk], owners.shown(pool.owner_team, named) or "")
        for pool in rows
    ], numbers  # fmt: skip


def gpu_pods_on(node: Node) -> QuerySet[GpuPod]:
    return GpuPod.objects.filter(cluster=node.cluster_id, node_name=node.name).order_by("namespace", "name")


# ── what may be done ──────────────────────────────────────────────────────────────────────────────────────────────────
def cluster_actions(cluster: Cluster, *, is_detailed: bool = False) -> dict[str, bool]:
    """Return the actions that the cluster's state permits. `disconnect` asks other apps: for one cluster alone
    (`is_detailed`)."""
    actions = {"test": True, "refresh": True, "update": True, "rotate_credential": True}
    return actions | ({"disconnect": not hooks.disconnect_blockers(cluster)} if is_detailed else {})


def cluster_permissions(cluster: Cluster, user: User) -> dict[str, bool]:
    is_admin, is_operator = (may(user, role, cluster.scopes) for role in (Role.ADMIN, Role.OPERATOR))
    return {
        "test": is_operator or is_admin,
        "refresh": is_operator or is_admin,
        "update": is_admin,
        "rotate_credential": is_admin,
        "disconnect": is_admin,
        "create_pool": is_operator,
    }


def pool_actions(pool: Pool) -> dict[str, bool]:
    is_free = not hooks.pool_blockers(pool.pk)
    return {"update": True, "change_selector": is_free, "delete": is_free}


def pool_permissions(pool: Pool, user: User) -> dict[str, bool]:
    is_free = not pools.reason_against(pool, user)
    may_give = may(user, Role.ADMIN, pool.cluster.scopes)
    return {"update": is_free, "change_selector": is_free, "delete": is_free, "change_owner": may_give}


def why_not(cluster: Cluster, user: User) -> Mapping[str, str]:
    """Return, for each button of the cluster's page, why it is not offered; empty if it is."""
    permitted = cluster_permissions(cluster, user)
    reasons = {name: "" if is_so else f"You need the role {_ROLE_FOR[name]} here." for name, is_so in permitted.items()}
    if not reasons["disconnect"] and (blockers := hooks.disconnect_blockers(cluster)):
        reasons["disconnect"] = "; ".join(blockers)
    return reasons


_ROLE_FOR = {
    "test": "operator",
    "refresh": "operator",
    "update": "admin",
    "rotate_credential": "admin",
    "disconnect": "admin",
    "create_pool": "operator",
}
