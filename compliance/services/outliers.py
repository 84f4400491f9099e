"""Nodes that answer something else than nearly all of their peers.

Computed by a task and stored, not in a request: it needs every observed value of a cluster, and 5,000 nodes have 1.4
million, which take seconds to read. Nor at every write: one changed node would make its whole group be counted again.
A look at a cluster of which no row changed since the last costs three queries, and only rows that differ are written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Count, Max

from clusters.models import Cluster, Node, NodeTuning
from common.clock import now
from compliance.models import NodeStanding, Outlier, OutlierNode, Reading
from contract import disks

FEWEST = 5
"""Nodes of a group below which nothing is usual."""
USUAL = 0.9
"""Share of the peers that must agree; with less, the value simply varies."""
MOST_VALUES = 10
MOST_NAMES = 10
OF_THE_NODE = {"node.kernel": "kernel", "node.kubelet": "kubelet", "node.os": "os_image"}
"""Facts of the node itself that are compared like settings; no setting's key begins with `node.`."""

PeerGroup = tuple[int | None, str]
"""The pool (or None: the whole cluster), and what kind of node."""


class PeerAnswers:
    """Answers of a group: by key and value, its nodes. Integers only, of which each node's is one object."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, list[int]]] = defaultdict(dict)
        self.names: dict[int, str] = {}


@dataclass(frozen=True, slots=True)
class ComputedOutlier:
    group: PeerGroup
    key: str
    usual: str
    usual_nodes: int
    others: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]
    """(value, its nodes), the most frequent first."""

    @property
    def count(self) -> int:
        return sum(len(nodes) for _, nodes in self.others)

    def values(self) -> list[dict[str, Any]]:
        return [
            {"value": value, "count": len(nodes), "names": [name for _, name in nodes[:MOST_NAMES]]}
            for value, nodes in self.others[:MOST_VALUES]
        ]


def refresh(cluster: Cluster) -> bool:
    """Compute the cluster's outliers again if its rows changed since. Returns whether anything was read."""
    if not cluster.is_current:
        return False  # what was seen last says nothing about now
    mark = _mark(cluster)
    if Reading.objects.filter(cluster=cluster, mark=mark).exists():
        return False
    store(cluster, find(_answers(cluster)))
    Reading.objects.update_or_create(cluster=cluster, defaults={"mark": mark, "read_at": now()})
    return True


def _mark(cluster: Cluster) -> str:
    """Changes whenever a node or an agent's answer does."""
    present = Node.objects.present().filter(cluster=cluster)
    nodes = present.aggregate(n=Count("pk"), last=Max("changed_at"))
    tunings = NodeTuning.objects.filter(node__in=present).aggregate(n=Count("pk"), last=Max("changed_at"))
    placed = NodeStanding.objects.filter(node__in=present, pool__isnull=False).count()
    return f"{nodes['n']} {nodes['last']} {tunings['n']} {tunings['last']} {placed}"


def _answers(cluster: Cluster) -> Iterator[tuple[PeerGroup, int, str, Mapping[str, str]]]:
    """(group, node, name, answers): one node at a time, so that memory holds counts and not every answer."""
    columns = ("pk", "name", "gpu_product", "is_control_plane", "standing__pool", *OF_THE_NODE.values())
    rows = Node.objects.present().filter(cluster=cluster, tuning__protocol__gt=0)
    for pk, name, product, is_master, pool, *facts, observed in rows.values_list(*columns, "tuning__observed").iterator(
        200
    ):
        peers = "control-plane nodes" if is_master else product or "nodes without GPU"
        own = {key: fact for key, fact in zip(OF_THE_NODE, facts, strict=True) if fact}
        yield (pool, peers), pk, name, {**(observed or {}), **own}


def find(answers: Iterable[tuple[PeerGroup, int, str, Mapping[str, str]]]) -> list[ComputedOutlier]:
    """Pure. A node that has no answer to a key is not compared in it."""
    groups: dict[PeerGroup, PeerAnswers] = defaultdict(PeerAnswers)
    for group, pk, name, values in answers:
        seen = groups[group]
        seen.names[pk] = name
        for key, value in values.items():
            if not key.startswith(disks.PREFIX):  # a serial number is no other node's
                seen.answers[key].setdefault(value, []).append(pk)
    return [outlier for group, seen in groups.items() for outlier in _of_group(group, seen)]


def _of_group(group: PeerGroup, seen: PeerAnswers) -> Iterator[ComputedOutlier]:
    names = seen.names
    for key, by_value in seen.answers.items():
        total = sum(map(len, by_value.values()))
        if len(by_value) < 2 or total < FEWEST:
            continue
        usual = max(by_value, key=lambda value: len(by_value[value]))
        usual_nodes = len(by_value[usual])
        if usual_nodes < USUAL * total and total - usual_nodes > 1:
            continue
        others = [
            (value, tuple(sorted(((pk, names[pk]) for pk in pks), key=lambda node: node[1])))
            for value, pks in by_value.items()
            if value != usual
        ]
        others.sort(key=lambda item: (-len(item[1]), item[0]))
        yield ComputedOutlier(group, key, usual, usual_nodes, tuple(others))


def store(cluster: Cluster, outliers: Iterable[ComputedOutlier]) -> int:
    """Write what differs from the rows there are; `since` is when the key first differed. Returns rows written."""
    desired = {(_scope(f.group[0]), f.group[1][:200], f.key): f for f in outliers}
    written = 0
    with transaction.atomic():
        Cluster.objects.select_for_update().filter(pk=cluster.pk).first()  # one writer a cluster
        known = {(o.scope, o.peers, o.key): o for o in Outlier.objects.filter(cluster=cluster)}
        over = [row.pk for name, row in known.items() if name not in desired]
        written += Outlier.objects.filter(pk__in=over).delete()[0] if over else 0
        members = _members([row.pk for name, row in known.items() if name in desired])
        for name, item in desired.items():
            row = known.get(name)
            nodes = {pk: value for value, others in item.others for pk, _ in others}
            fields = {
                "usual": item.usual,
                "usual_nodes": item.usual_nodes,
                "count": item.count,
                "values": item.values(),
            }
            if row is None:
                row = Outlier(cluster=cluster, pool_id=item.group[0], scope=name[0], peers=name[1], key=item.key)
            elif all(getattr(row, n) == v for n, v in fields.items()) and members.get(row.pk) == nodes:
                continue
            for field_name, value in fields.items():
                setattr(row, field_name, value)
            row.save()
            OutlierNode.objects.filter(outlier=row).delete()
            OutlierNode.objects.bulk_create(
                [OutlierNode(outlier=row, node_id=pk, value=value) for pk, value in nodes.items()], batch_size=500
            )
            written += 1
    return written


def _scope(pool_id: int | None) -> str:
    return f"pool:{pool_id}" if pool_id else "cluster"


def _members(outlier_ids: list[int]) -> dict[int, dict[int, str | None]]:
    out: dict[int, dict[int, str | None]] = defaultdict(dict)
    rows = OutlierNode.objects.filter(outlier__in=outlier_ids).values_list("outlier_id", "node_id", "value")
    for outlier, node, value in rows:
        out[outlier][node] = value
    return out
