"""Data of the compliance pages: each a fixed number of queries at any size of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, ClusterDay, Node
from common import hooks, look
from common.clock import now
from common.templatetags import chart_data
from compliance.models import Assignment, ComplianceState, Outlier, SettingState
from compliance.reports import security, selectors, wording
from compliance.reports.selectors import UNASSIGNED, Column, Counts, NodeGroup
from compliance.services import assignments
from profiles.catalog import weakening

FIRST_KEYS = 9
MOST_COLUMNS = 12
"""Pools of the matrix; more are reached through the filter."""
MOST_OUTLIERS = 8
READ_OUTLIERS = 100
DAYS = 30


def fleet(user: User, params: Mapping[str, str]) -> dict[str, Any]:
    """`params`: cluster (a name), environment, all (every key of the matrix)."""
    scope = Q()
    if params.get("cluster"):
        scope &= Q(cluster__name=params["cluster"])
    if params.get("environment"):
        scope &= Q(cluster__environment=params["environment"])
    everywhere = selectors.groups(restrict(Node.objects.filter(_env(params)), user))
    names = sorted({group.cluster for group in everywhere})
    groups = [group for group in everywhere if params.get("cluster", "") in ("", group.cluster)]
    counts = selectors.counted(groups)
    rows = list(selectors.assignments(user).filter(_of_pool(params)))
    columns = selectors.matrix(rows, groups)
    keys = selectors.keys_of(columns)
    every = restrict(Outlier.objects.filter(scope), user).select_related("cluster", "pool")
    outliers = alike(every.order_by("-count", "key")[:READ_OUTLIERS])
    rows_of_pools = pools(user, columns, groups)
    weak = security.WeakSettings(_settings(user, params))
    return {
        "filters": params,
        "cluster_names": names,
        "environments": Cluster.Environment.values,
        "counts": counts,
        "axis": {name: counts[name] for name in selectors.ASSIGNED},
        "assigned": sum(counts[name] for name in selectors.ASSIGNED),
        "total": sum(counts.values()),
        "clusters": _clusters(groups),
        "pools": rows_of_pools,
        "matrix": _matrix(columns, keys if params.get("all") else keys[:FIRST_KEYS]),
        "key_count": len(keys),
        "shown_keys": min(len(keys), len(keys) if params.get("all") else FIRST_KEYS),
        "hidden_columns": max(0, len(columns) - MOST_COLUMNS),
        "causes": _causes(user, scope, counts),
        "unknown_by": _unknown_by(groups),
        "waiting": _waiting(rows_of_pools),
        "outliers": outliers[:MOST_OUTLIERS],
        "more_outliers": len(outliers) > MOST_OUTLIERS,
        "course": course(user, scope, counts),
        "weak": weak.together(),
        "sides": weakening.SIDES,
        "weak_values": weak.values(),
    }


def _settings(user: User, params: Mapping[str, str]) -> QuerySet[SettingState]:
    """Assigned settings of present nodes in this cluster and environment."""
    rows = SettingState.objects.filter(node__gone_at=None)
    if params.get("cluster"):
        rows = rows.filter(node__cluster__name=params["cluster"])
    if params.get("environment"):
        rows = rows.filter(node__cluster__environment=params["environment"])
    return restrict(rows, user, "node__cluster__")


def _env(params: Mapping[str, str]) -> Q:
    return Q(cluster__environment=params["environment"]) if params.get("environment") else Q()


def _of_pool(params: Mapping[str, str]) -> Q:
    condition = Q()
    if params.get("cluster"):
        condition &= Q(pool__cluster__name=params["cluster"])
    if params.get("environment"):
        condition &= Q(pool__cluster__environment=params["environment"])
    return condition


def _clusters(node_groups: Iterable[NodeGroup]) -> list[dict[str, Any]]:
    rows = []
    for pk, groups in selectors.by(node_groups, "cluster_id").items():
        counts = selectors.counted(groups)
        rows.append({"pk": pk, "name": groups[0].cluster, "counts": counts, "total": sum(counts.values())})
    return sorted(rows, key=lambda row: (_rank(row["counts"]), row["name"]))


def _rank(counts: Counts) -> tuple[int, int]:
    worst = next((state for state in selectors.RANK if state != UNASSIGNED and counts[state]), UNASSIGNED)
    return selectors.RANK[worst], -counts[worst]


def pools(user: User, columns: Sequence[Column], node_groups: Iterable[NodeGroup]) -> list[dict[str, Any]]:
    """Assigned pools, the worst first, each with its counts, joining nodes, and the plan that waits for them."""
    by_pool = selectors.by(node_groups, "pool_id")
    behind = [
        c.assignment for c in columns if any(g.shown == ComplianceState.PENDING for g in by_pool[c.assignment.pool_id])
    ]
    enforced = [c.assignment.pool_id for c in columns if c.assignment.mode == Assignment.Mode.ENFORCE]
    work = hooks.work_of_pools(enforced + [a.pool_id for a in behind]) if enforced or behind else []
    plans, live = selectors.plans_for(behind, work), [ref for ref in work if ref.kind == "rollout"]
    rows = []
    for column in columns:
        assignment, groups = column.assignment, by_pool[column.assignment.pool_id]
        counts = selectors.counted(groups)
        working = [ref for ref in live if ref.pool_id == assignment.pool_id]
        rows.append(
            {
                "assignment": assignment,
                "counts": counts,
                "total": sum(counts.values()),
                "joining": sum(group.nodes for group in groups if group.is_joining),
                "plan": plans.get(assignment.pool_id),
                "rollout": working[0] if working else None,
                "why_not_observe": assignments.why_not_weaken(assignment, live)
                or why_not(user, assignment, "stop repairs here"),
            }
        )
    return sorted(rows, key=lambda row: (_rank(row["counts"]), str(row["assignment"].pool)))


def why_not(user: User, assignment: Assignment, doing: str) -> str:
    reason = assignments.reason_against(user, assignment)
    return f"To {doing}: {reason}" if reason else ""


def _matrix(columns: Sequence[Column], keys: Sequence[str]) -> dict[str, Any]:
    """Columns side by side under their clusters, and one row a key."""
    chosen = sorted(columns, key=_column_rank)[:MOST_COLUMNS]
    chosen.sort(key=lambda c: (c.assignment.pool.cluster.name, c.assignment.pool.name))
    heads: list[dict[str, Any]] = []
    for column in chosen:
        name = column.assignment.pool.cluster.name
        if heads and heads[-1]["name"] == name:
            heads[-1]["span"] += 1
        else:
            heads.append({"name": name, "span": 1})
    rows = [
        {
            "key": key,
            "cells": [(column, column.cells.get(key)) for column in chosen],
            "weak": next((cell.weak for column in chosen if (cell := column.cells.get(key)) and cell.weak), ""),
        }
        for key in keys
    ]
    return {"heads": heads, "columns": chosen, "rows": rows}


def _column_rank(column: Column) -> tuple[int, int]:
    ranks = [(selectors.RANK[cell.worst], -cell.counts[cell.worst]) for cell in column.cells.values()]
    return min(ranks, default=(9, 0))


def _causes(user: User, scope: Q, counts: Counts) -> list[dict[str, Any]]:
    if not counts[ComplianceState.DRIFTED]:
        return []
    causes = selectors.causes(restrict(Node.objects.filter(scope), user))
    return [
        {"words": selectors.cause_words(cause, path), "cause": cause, "file": path, "nodes": nodes}
        for cause, path, nodes in causes[:3]
    ]


def _unknown_by(groups: Iterable[NodeGroup]) -> list[tuple[str, int]]:
    by_name: dict[str, int] = {}
    for group in groups:
        if group.shown == ComplianceState.UNKNOWN:
            by_name[group.cluster] = by_name.get(group.cluster, 0) + group.nodes
    return sorted(by_name.items(), key=lambda item: (-item[1], item[0]))[:3]


def _waiting(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what pending nodes wait for: a rollout, a plan, or an operator to create one."""
    waiting = [row for row in rows if row["counts"][ComplianceState.PENDING]][:3]
    return [
        {
            "nodes": (nodes := row["counts"][ComplianceState.PENDING]),
            "words": wording.waits_for(nodes, row["assignment"].pool, row["rollout"], row["plan"]),
            "is_draft": row["rollout"] is None and wording.is_not_requested(row["plan"]),
        }
        for row in waiting
    ]


def alike(rows: Iterable[Outlier]) -> list[dict[str, Any]]:
    """Outliers in which the same nodes differ are one line: an older kernel brings older defaults with it."""
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        names = tuple(sorted(name for value in row.values for name in value["names"]))
        entry = out.setdefault(
            (row.cluster_id, row.scope, row.peers, row.count, names), {"row": row, "names": names, "keys": []}
        )
        entry["keys"].append(row)
    return [entry | {"weak": security.of_outliers(entry["keys"])} for entry in out.values()]


# ── for programs ──────────────────────────────────────────────────────────────────────────────────────────────────────
def summary(user: User, params: Mapping[str, str]) -> dict[str, Any]:
    groups, columns = _everything(user, params)
    weak = security.WeakSettings(_settings(user, params))
    return {
        "counts": selectors.counted(groups),
        "weakens_security": weak.together(),
        "clusters": [
            {
                "cluster": row["pk"],
                "cluster_name": row["name"],
                "counts": row["counts"],
                "weakens_security": weak.of(row["pk"]),
            }
            for row in _clusters(groups)
        ],
        "pools": _pool_rows(user, columns, groups),
    }


def matrix(user: User, params: Mapping[str, str]) -> dict[str, Any]:
    groups, columns = _everything(user, params, with_cells=True)
    rows = [
        {
            "key": key,
            "cells": [
                {
                    "pool": column.assignment.pool_id,
                    "counts": column.cells[key].counts,
                    "weakens_security": column.cells[key].weak,
                }
                for column in columns
                if key in column.cells
            ],
        }
        for key in selectors.keys_of(columns)
    ]
    return {"pools": _pool_rows(user, columns, groups), "settings": rows}


def _everything(
    user: User, params: Mapping[str, str], *, with_cells: bool = False
) -> tuple[list[NodeGroup], list[Column]]:
    scope = Q(cluster__name=params["cluster"]) if params.get("cluster") else Q()
    groups = selectors.groups(restrict(Node.objects.filter(scope, _env(params)), user))
    rows = list(selectors.assignments(user).filter(_of_pool(params)))
    return groups, selectors.matrix(rows, groups) if with_cells else [Column(row) for row in rows]


def _pool_rows(user: User, columns: Sequence[Column], groups: Iterable[NodeGroup]) -> list[dict[str, Any]]:
    return [
        {
            "cluster": row["assignment"].pool.cluster_id,
            "cluster_name": row["assignment"].pool.cluster.name,
            "pool": row["assignment"].pool_id,
            "pool_name": row["assignment"].pool.name,
            "target": str(row["assignment"].revision),
            "mode": row["assignment"].mode,
            "counts": row["counts"],
            "joining": row["joining"],
            "plan": row["plan"].number if row["plan"] else None,
        }
        for row in pools(user, columns, groups)
    ]


# ── over time ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def course(user: User, scope: Q, present: Counts) -> dict[str, Any]:
    """Return nodes by state and day as stacked areas, today at its present counts.

    A day without counts repeats the last.
    """
    today = now().date()
    span = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    rows = restrict(ClusterDay.objects.filter(scope, day__gte=span[0], day__lt=today), user)
    stored = rows.order_by("day").values_list("cluster_id", "day", "counts")
    by_day: dict[Any, dict[Any, Mapping[str, int]]] = {}
    for cluster, day, counts in stored:
        by_day.setdefault(day, {})[cluster] = counts.get("compliance", {})
    last: dict[Any, Mapping[str, int]] = {}
    points: list[tuple[Any, Counts]] = []
    for day in span[:-1]:
        last |= by_day.get(day, {})
        if last:
            points.append((day, {n: sum(c.get(n, 0) for c in last.values()) for n in selectors.ASSIGNED}))
    points.append((today, {name: present[name] for name in selectors.ASSIGNED}))
    return _areas(points)


HEIGHT = 134


def _areas(points: Sequence[tuple[Any, Counts]]) -> dict[str, Any]:
    """Paths in a box of 1000 × HEIGHT, from the bottom: compliant, unknown, pending, drifted on top."""
    most = max((sum(counts.values()) for _, counts in points), default=0)
    if len(points) < 2 or not most:
        return {}
    step = 1000 / (len(points) - 1)
    floor = [0.0] * len(points)
    paths, series = [], []
    for state, css in (("compliant", "oks"), ("unknown", "unk"), ("pending", "run"), ("drifted", "warn")):
        top = [low + counts[state] for low, (_, counts) in zip(floor, points, strict=True)]
        if any(counts[state] for _, counts in points):
            upper = [f"{i * step:.1f},{HEIGHT - HEIGHT * y / most:.1f}" for i, y in enumerate(top)]
            lower = [f"{i * step:.1f},{HEIGHT - HEIGHT * y / most:.1f}" for i, y in enumerate(floor)]
            paths.append({"css": css, "d": f"M{' '.join(upper)} {' '.join(reversed(lower))}Z"})
            word = look.appearance("compliance", state).word
            series.append(chart_data.Series(word, f"f-{css}", [counts[state] for _, counts in points]))
        floor = top
    (first, was), (last, is_now) = points[0], points[-1]
    then = f"from {first.day} {first:%b} to {last.day} {last:%b}: {was['compliant']:,} compliant then"
    return {
        "paths": paths,
        "data": chart_data.days("compliance", first, series),
        "most": most,
        "first": first,
        "last": last,
        "days": len(points),
        "said": f"Nodes by state {then}, {is_now['compliant']:,} compliant, {is_now['drifted']:,} drifted, "
        f"{is_now['pending']:,} pending and {is_now['unknown']:,} unknown now",
    }


# ── one node ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def assignment_of(node: Node) -> Assignment | None:
    """Return the assignment of the pool that holds a node of `selectors.nodes`."""
    standing = getattr(node, "standing", None)
    return getattr(standing.pool, "assignment", None) if standing and standing.pool else None


def joining(node: Node) -> dict[str, Any] | None:
    """Return what a node of `selectors.nodes` waits for while it is not at its pool's target; None when it is."""
    standing, assignment = getattr(node, "standing", None), assignment_of(node)
    expectation = getattr(node, "expectation", None)
    if assignment is None or (expectation is not None and expectation.revision_id == assignment.revision_id):
        return None
    live = hooks.rollouts_of_pools([assignment.pool_id])
    plans = [plan for _, plan in hooks.plans_of_nodes([node.pk]) if plan.revision_id == assignment.revision_id]
    return {
        "assignment": assignment,
        "since": standing.since if standing else None,
        "is_joining": bool(standing and standing.is_joining),
        "plan": plans[0] if plans else None,
        "rollout": live[0] if live else None,
    }


def weak_in(user: User, cluster: Cluster) -> dict[str, int]:
    """Asked for by itself, once the page of the cluster is there."""
    return security.WeakSettings(_settings(user, {"cluster": cluster.name})).together()


def cluster_targets(user: User, cluster: Cluster) -> dict[str, Any]:
    """Its nodes by compliance and each pool's target. Three queries at most."""
    groups = selectors.groups_of([cluster])[cluster.pk]
    counts = selectors.counted(groups)
    columns = [Column(row) for row in selectors.assignments(user).filter(pool__cluster=cluster)]
    return {
        "cluster": cluster,
        "counts": counts,
        "assigned": sum(counts[name] for name in selectors.ASSIGNED),
        "pools": pools(user, columns, groups),
    }
