"""Contradicting targets of other pools for nodes that a plan is about.

A node that two pools select follows the plan that was carried out last: the other pool's nodes leave its target without
drifting, and a plan there takes them back. Approvers must know that both targets cannot hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from clusters.models import Pool
from clusters.services.pools import matching
from compliance.models import Assignment
from contract import keys
from jobs.diffs.node_diff import Target
from jobs.forecast.findings import PlanFinding

SHOWN = 5
"""Wishes of one other pool that the finding spells out."""


def overlap_findings(pool: Pool, target: Target, nodes: Collection[int]) -> list[PlanFinding]:
    """`nodes` by id are those that the plan touches."""
    rows = Assignment.objects.filter(pool__cluster=pool.cluster_id).exclude(pool=pool).order_by("pool__name")
    out = []
    for row in rows.select_related("pool", "revision"):
        if not (against := list(contradictions(target, Target.of(row.revision.content)))):
            continue
        shared = list(matching(row.pool).filter(pk__in=nodes).values_list("name", flat=True))
        if shared:
            out.append(_finding(row, against, shared))
    return out


def _finding(row: Assignment, against: list[str], shared: list[str]) -> PlanFinding:
    more = f", and {len(against) - SHOWN} more" if len(against) > SHOWN else ""
    count = "1 node is" if len(shared) == 1 else f"{len(shared)} nodes are"
    return PlanFinding(
        "warn",
        "other-target",
        f"{count} in the pool {row.pool.name}, too, whose target differs",
        f"{row.revision} there: {'; '.join(against[:SHOWN])}{more}. Nodes follow the plan that is carried out last, so "
        "the next one of that pool takes them back. Let one pool select them, or both want the same.",
        shared,
    )


def contradictions(ours: Target, theirs: Target) -> Iterator[str]:
    """Yield, in words, what no node can have at once, or has only by chance."""
    wanted = {key: (operator, value) for key, operator, value, _ in theirs.settings}
    for key, operator, value, _ in ours.settings:
        if key in wanted and not _agree((operator, value), wanted[key]):
            yield f"{key} {' '.join(wanted[key])}, here {operator} {value}"
    for mine, other in ((ours.labels, theirs.labels), (ours.annotations, theirs.annotations)):
        for name in mine.keys() & other.keys():
            if mine[name] != other[name]:
                yield f"{name}: {other[name]}, here {mine[name]}"
    values: dict[tuple[str, str], list[str]] = defaultdict(list)
    for taints in (theirs.taints, ours.taints):
        for key, value, effect in taints:
            values[key, effect].append(value)
    for (key, effect), both in values.items():
        if len(set(both)) > 1:
            yield f"{key}:{effect} {both[0]}, here {both[-1]}"


def _agree(ours: tuple[str, str], theirs: tuple[str, str]) -> bool:
    """Two that only raise, or only lower, never fight; else what we write must be enough for them."""
    if ours[0] == theirs[0] != "=":
        return True
    return keys.satisfied(theirs[0], theirs[1], ours[1]) or keys.satisfied(ours[0], ours[1], theirs[1])
