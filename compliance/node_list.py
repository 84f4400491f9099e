"""What this room adds to lists and counts of nodes, through `common.hooks`: their compliance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Case, CharField, Count, Exists, OuterRef, Q, QuerySet, Value, When

from clusters.models import Node
from clusters.selectors import is_current
from common.hooks import NodeFilter, NodeMark
from compliance.models import NodeExpectation, SettingState

State = SettingState.State
UNASSIGNED = "unassigned"
VALUES = (State.DRIFTED, State.UNKNOWN, State.PENDING, State.COMPLIANT, UNASSIGNED)


def _compliance() -> Case:
    """A node's compliance in SQL: the worst of its settings; unknown while its cluster is not watched."""
    states = SettingState.objects.filter(node=OuterRef("pk"))
    return Case(
        When(Q(expectation__revision=None), then=Value(UNASSIGNED)),
        When(~is_current(), then=Value(State.UNKNOWN.value)),
        *(
            When(Exists(states.filter(state=state)), then=Value(state.value))
            for state in (State.DRIFTED, State.UNKNOWN, State.PENDING)
        ),
        default=Value(State.COMPLIANT.value),
        output_field=CharField(),
    )


def narrow(nodes: QuerySet[Node], value: str) -> QuerySet[Node]:
    return nodes.alias(compliance=_compliance()).filter(compliance=value)


def count(nodes: QuerySet[Node]) -> Mapping[str, int]:
    rows = nodes.order_by().annotate(compliance=_compliance()).values("compliance").annotate(n=Count("pk"))
    return dict(rows.values_list("compliance", "n"))


def filters() -> Iterable[NodeFilter]:
    yield NodeFilter("compliance", tuple(str(value) for value in VALUES), narrow, count)


def marks(node_ids: Sequence[int]) -> Iterable[NodeMark]:
    """Compliance of each of these nodes and what is off. Three queries."""
    current = dict(Node.objects.filter(pk__in=node_ids).annotate(known=is_current_flag()).values_list("pk", "known"))
    expected = set(
        NodeExpectation.objects.filter(node__in=node_ids).exclude(revision=None).values_list("node_id", flat=True)
    )
    off: dict[int, Counter[str]] = defaultdict(Counter)
    rows = SettingState.objects.filter(node__in=node_ids).exclude(state=State.COMPLIANT).order_by()
    for node_id, state, number in (
        rows.values("node", "state").annotate(n=Count("pk")).values_list("node", "state", "n")
    ):
        off[node_id][state] = number
    for node_id in node_ids:
        if node_id not in expected:
            yield NodeMark(node_id, "compliance", UNASSIGNED)
        elif not current.get(node_id):
            yield NodeMark(node_id, "compliance", str(State.UNKNOWN))
        else:
            worst = next((s for s in VALUES[:3] if off[node_id][s]), State.COMPLIANT)
            number = off[node_id][worst]
            note = f"{number} setting{'' if number == 1 else 's'}" if number else ""
            yield NodeMark(node_id, "compliance", str(worst), note)


def is_current_flag() -> Case:
    return Case(When(is_current(), then=Value(True)), default=Value(False))


def by_cluster(cluster_ids: Sequence[UUID]) -> Iterable[tuple[UUID, str, Mapping[str, int]]]:
    """Nodes by compliance of each of these clusters, in one query."""
    nodes = Node.objects.present().filter(cluster__in=list(cluster_ids)).order_by()
    counted: dict[UUID, dict[str, int]] = {pk: {} for pk in cluster_ids}
    rows: Any = nodes.annotate(compliance=_compliance()).values("cluster", "compliance").annotate(n=Count("pk"))
    for cluster_id, value, number in rows.values_list("cluster", "compliance", "n"):
        counted[cluster_id][value] = number
    for cluster_id, counts in counted.items():
        yield cluster_id, "compliance", counts
