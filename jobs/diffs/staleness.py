"""Changes on a plan's nodes since it was made: nothing is written over them, so approvers must know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from contract import keys
from jobs.diffs.changes import Change, ChangeKind, Changes
from jobs.models import ChangeSet, Plan

LOOKED_AT = 1000
"""Nodes that a page looks at; where more changed, the count is at least this much."""


@dataclass(frozen=True, slots=True)
class ChangesSincePlanned:
    """Changes since a plan was made that has not been started."""

    values: int = 0
    """Planned values that are neither what the plan saw nor what it wants: the steps of their nodes will be held."""
    of: int = 0
    """Values that the plan changes."""
    nodes: int = 0
    """With such a value."""
    gone: int = 0
    """Nodes of the plan that are not in the cluster any more; their steps end without being carried out."""
    is_partial: bool = False
    """More nodes changed than were looked at."""

    @property
    def is_any(self) -> bool:
        return bool(self.values or self.gone)


def is_moved(change: Change, effective: str | None) -> bool:
    """Return whether a planned setting has neither its before- nor its after-value."""
    if change.kind == ChangeKind.RESTORE:
        is_after = effective == change.value
    else:
        is_after = keys.satisfied(change.operator, change.value or "", effective)
    return effective != change.expect and not is_after


def changes_since_planned(plan: Plan) -> ChangesSincePlanned:
    """Counted from rows, in two queries; of a plan that is open."""
    total = int(plan.summary.get("values", 0))
    if plan.status not in Plan.NEXT:
        return ChangesSincePlanned(of=total)
    at = plan.observed_at
    is_other = Q(node__tuning__changed_at__gt=at) | Q(node__changed_at__gt=at) | Q(node__gone_at__isnull=False)
    rows = plan.nodes.filter(is_other, batch__gt=0).order_by("batch", "position")
    columns = ("change_set_id", "node__gone_at", "node__tuning__observed", "node__taints")
    members = list(rows.values_list(*columns)[: LOOKED_AT + 1])
    if not members:
        return ChangesSincePlanned(of=total)
    sets = ChangeSet.objects.filter(pk__in={row[0] for row in members if row[0]})
    changes = {pk: Changes.from_json(content) for pk, content in sets.values_list("pk", "content")}
    values = nodes = gone = 0
    for change_set, gone_at, observed, taints in members[:LOOKED_AT]:
        if gone_at:
            gone += 1
            continue
        there = _PresentValues(observed or {}, {(t["key"], t["effect"]): t["value"] for t in taints})
        moved = sum(there.moved(change) for change in changes[change_set].items) if change_set else 0
        values, nodes = values + moved, nodes + bool(moved)
    return ChangesSincePlanned(values, total, nodes, gone, len(members) > LOOKED_AT)


@dataclass(frozen=True, slots=True)
class _PresentValues:
    """Present values of a node."""

    observed: Mapping[str, Any]
    taints: Mapping[tuple[str, str], Any]

    def moved(self, change: Change) -> bool:
        """Return whether a change that can hold its step has moved; labels and annotations are set over any value."""
        if change.kind in (ChangeKind.SETTING, ChangeKind.RESTORE):
            return is_moved(change, self.observed.get(change.key))
        if change.kind == ChangeKind.TAINT:
            key, _, effect = change.key.rpartition(":")
            return self.taints.get((key, effect)) not in (change.expect, change.value)
        return False
