"""Compliance columns and counts of the node lists, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from django.db.models import QuerySet

from clusters.models import Cluster, Node
from common.hooks import NodeListFilter, NodeMark
from compliance.models import ComplianceState
from compliance.reports import selectors


def narrow(nodes: QuerySet[Node], value: str) -> QuerySet[Node]:
    return nodes.filter(selectors.is_shown(value))


def count(nodes: QuerySet[Node]) -> Mapping[str, int]:
    return {name: number for name, number in selectors.count(nodes).items() if number}


def filters() -> Iterable[NodeListFilter]:
    yield NodeListFilter("compliance", tuple(str(value) for value in selectors.RANK), narrow, count)


def marks(node_ids: Sequence[int]) -> Iterable[NodeMark]:
    """Compliance of each of these nodes and what is off. One query."""
    nodes = Node.objects.filter(pk__in=node_ids).annotate(shown=selectors.shown_of_node())
    for pk, shown, drifted, pending in nodes.values_list("pk", "shown", "standing__drifted", "standing__pending"):
        number = {ComplianceState.DRIFTED: drifted, ComplianceState.PENDING: pending}.get(shown) or 0
        note = f"{number} setting{'' if number == 1 else 's'}" if number else ""
        yield NodeMark(pk, "compliance", shown, note)


def by_cluster(clusters: Sequence[Cluster]) -> Iterable[tuple[UUID, str, Mapping[str, int]]]:
    """Nodes by compliance of each of these clusters, in one query."""
    for pk, groups in selectors.groups_of(clusters).items():
        yield pk, "compliance", {name: number for name, number in selectors.counted(groups).items() if number}
