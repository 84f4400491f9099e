"""Changes of a plan, presented for people: identical differences once, by class, by key, or node by node.

A revision has some dozen keys, but thousands of nodes may start from thousands of different values: per key a few are
named and the others are one line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from django.db.models import Count, F, QuerySet, Window
from django.db.models.functions import RowNumber

from jobs.diffs.changes import ChangeKind, Disruption
from jobs.forecast import schedule
from jobs.models import ChangeSet, Plan, PlanNode

NAMED_NODES = 20
"""Nodes named of each difference; the by-node view has them all."""
NAMED_VALUES = 5
"""Values before the change that are named of one key."""
SHOWN_BATCHES = 8
SHOWN_DOMAINS = 20


def grouped_changes(plan: Plan) -> list[dict[str, Any]]:
    """Identical differences as one row each, under their class, the most disruptive class first. Two queries."""
    changed = _planned(plan).order_by()
    rank = Window(RowNumber(), partition_by="change_set", order_by=F("position").asc())
    same = Window(Count("pk"), partition_by="change_set")
    per_set: dict[str, int] = {}
    named: dict[str, list[str]] = defaultdict(list)
    few = changed.annotate(rank=rank, same=same).filter(rank__lte=NAMED_NODES).order_by("position")
    for change_set, name, nodes in few.values_list("change_set_id", "name", "same"):
        per_set[change_set] = nodes
        named[change_set].append(name)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in ChangeSet.objects.filter(pk__in=changed.values("change_set")):
        for item in row.content["items"]:
            key = tuple(item[name] for name in ("apply_class", "kind", "key", "operator", "expect", "value"))
            entry = rows.get(key)
            if entry is None:
                entry = rows[key] = _entry(item)
            entry["nodes"] += per_set[row.pk]
            if len(entry["names"]) < NAMED_NODES:
                entry["names"] = sorted({*entry["names"], *named[row.pk]})[:NAMED_NODES]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in rows.values():
        groups[entry["apply_class"]].append(entry)
    return [
        {"apply_class": name, "changes": sorted(groups[name], key=lambda c: (c["key"], c["kind"], -c["nodes"]))}
        for name in sorted(groups, key=lambda c: -Disruption(c).rank)
    ]


def _planned(plan: Plan) -> QuerySet[PlanNode]:
    """Nodes that change, as approved: those that joined since are in no batch."""
    rows: QuerySet[PlanNode] = plan.nodes.filter(batch__gt=0)
    return rows


def _entry(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": item["kind"], "key": item["key"], "operator": item["operator"], "before": item["expect"],
        "after": item["value"], "apply_class": item["apply_class"], "nodes": 0, "names": [],
    }  # fmt: skip


def folded_groups(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same for a page: of each key a few values by name, the most frequent first, and one line for the others."""
    return [{"apply_class": g["apply_class"], "changes": list(_folded(g["changes"]))} for g in groups]


def _folded(changes: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    of_key: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for change in changes:
        of_key[change["kind"], change["key"], change["operator"], str(change["after"])].append(change)
    for same in of_key.values():
        if len(same) <= NAMED_VALUES:
            yield from same
            continue
        ranked = sorted(same, key=lambda c: -c["nodes"])
        yield from ranked[: NAMED_VALUES - 1]
        rest = ranked[NAMED_VALUES - 1 :]
        names = sorted(name for change in rest[:NAMED_NODES] for name in change["names"][:1])
        yield rest[0] | {"nodes": sum(c["nodes"] for c in rest), "distinct": len(rest), "names": names, "before": None}


def unchanged_keys(plan: Plan, groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List what the revision wants and no node needs: every key that no difference names."""
    changing = {(c["kind"], c["key"]) for g in groups for c in g["changes"]}
    content = plan.revision.content
    wanted = [(ChangeKind.SETTING, s["key"], s["operator"], s["value"]) for s in content.get("settings", ())]
    wanted += [(ChangeKind.LABEL, key, "=", value) for key, value in (content.get("labels") or {}).items()]
    wanted += [(ChangeKind.ANNOTATION, key, "=", value) for key, value in (content.get("annotations") or {}).items()]
    wanted += [
        (ChangeKind.TAINT, f"{t['key']}:{t['effect']}", "=", t.get("value") or "") for t in content.get("taints", ())
    ]
    return [
        {"kind": str(kind), "key": key, "operator": operator, "after": value}
        for kind, key, operator, value in sorted(wanted)
        if (kind, key) not in changing
    ]


def changes_by_node(plan: Plan, *, name: str = "", key: str = "") -> QuerySet[PlanNode]:
    """Nodes that change, in the order of their batches; of one key, those where that key changes."""
    rows = _planned(plan).select_related("change_set")
    if name:
        rows = rows.filter(name__icontains=name)
    if key:
        sets = ChangeSet.objects.filter(pk__in=rows.order_by().values("change_set"))
        rows = rows.filter(
            change_set__in=[s.pk for s in sets if any(item["key"] == key for item in s.content["items"])]
        )
    return rows.order_by("batch", "position", "pk")


def batch_rows(plan: Plan) -> list[dict[str, Any]]:
    """The canary, the frozen batch and the last, and one line for all between where there are many.

    With failure domains, all further batches of a domain are one line, while there are few domains.
    """
    rows: list[dict[str, Any]] = plan.summary.get("batches", [])
    if len(rows) <= SHOWN_BATCHES:
        return rows
    frozen = schedule.FROZEN_BATCHES
    domains = [list(batches) for _, batches in groupby(rows[frozen:], key=lambda row: row.get("domain"))]
    if "domain" in rows[0] and len(domains) <= SHOWN_DOMAINS:
        return rows[:frozen] + [_one_line(batches) for batches in domains]
    return [*rows[:3], _one_line(rows[3:-1]), rows[-1]]


def _one_line(middle: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one line for these batches."""
    if len(middle) == 1:
        return middle[0]
    sizes = {row["nodes"] for row in middle}
    total = {name: sum(row[name] for row in middle) for name in ("nodes", "gpus", "jobs", "seconds")}
    domains = {row.get("domain", "") for row in middle}
    return {
        **total, "number": middle[0]["number"], "to": middle[-1]["number"], "is_canary": False, "is_frozen": False,
        "first": middle[0]["first"], "last": middle[-1]["last"], "size": max(sizes), "is_even": len(sizes) == 1,
        "domain": min(domains), "is_mixed": len(domains) > 1,
    }  # fmt: skip
