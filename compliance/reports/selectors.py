"""Compliance of the fleet, for pages and the API alike: counted in the database, in a fixed number of queries.

A stored standing is the result of the last change to a node; effects of time alone are added here: a node whose
cluster or agent is silent is unknown, regardless of its stored state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Case, CharField, Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import STALE_AFTER, Cluster, Node, unheard
from common import hooks
from common.clock import now
from compliance.models import (
    Assignment,
    Cause,
    ComplianceState,
    NodeStanding,
    Outlier,
    OutlierNode,
    SettingChange,
    SettingState,
)
from profiles.catalog import weakening
from profiles.models import Revision

if TYPE_CHECKING:
    from typing import TypedDict

    from django_stubs_ext import WithAnnotations

    class Shown(TypedDict):
        """Annotation of the queries: a row's state, or unknown where it cannot be known now."""

        shown: str

    ShownNode = WithAnnotations[Node, Shown]
    ShownSetting = WithAnnotations[SettingState, Shown]
else:
    ShownNode, ShownSetting = Node, SettingState

UNASSIGNED = NodeStanding.UNASSIGNED
SHOWN = ("compliant", "drifted", "pending", "unknown", UNASSIGNED)
"""The axis, and beside it what no plan ever touched. Over any set of nodes these counts sum to its size."""
ASSIGNED = SHOWN[:-1]
RANK = {
    ComplianceState.DRIFTED: 0,
    ComplianceState.UNKNOWN: 1,
    ComplianceState.PENDING: 2,
    ComplianceState.COMPLIANT: 3,
    UNASSIGNED: 4,
}

Counts = dict[str, int]


# ── the axis, in SQL ──────────────────────────────────────────────────────────────────────────────────────────────────
def silent(prefix: str = "") -> Q:
    """Return the condition that a node at `prefix` is silent: its cluster or agent was not heard for too long."""
    current = Q(
        **{
            f"{prefix}cluster__reach": Cluster.Reach.REACHABLE,
            f"{prefix}cluster__observed_at__gt": now() - STALE_AFTER,
        }
    )
    return ~current | unheard(prefix)


def shown_of_node(prefix: str = "") -> Case:
    """The place on the axis of a node at `prefix`."""
    standing = f"{prefix}standing"
    return Case(
        When(Q(**{standing: None}) | Q(**{f"{standing}__state": UNASSIGNED}), then=Value(UNASSIGNED)),
        When(silent(prefix), then=Value(ComplianceState.UNKNOWN.value)),
        default=F(f"{standing}__state"),
        output_field=CharField(),
    )


def is_shown(value: str) -> Q:
    """shown_of_node() is this, as a condition that an index can serve."""
    if value == UNASSIGNED:
        return Q(standing=None) | Q(standing__state=UNASSIGNED)
    if value == ComplianceState.UNKNOWN:
        return ~Q(standing=None) & ~Q(standing__state=UNASSIGNED) & (Q(standing__state=value) | silent())
    return Q(standing__state=value) & ~silent()


def shown_of_setting() -> Case:
    return Case(
        When(silent("node__"), then=Value(ComplianceState.UNKNOWN.value)), default=F("state"), output_field=CharField()
    )


def _worst_first(name: str) -> Case:
    return Case(*(When(**{name: state}, then=Value(rank)) for state, rank in RANK.items()), output_field=IntegerField())


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def nodes(user: User) -> QuerySet[ShownNode]:
    """Present nodes with `shown`, and all that a row of a list shows."""
    rows: QuerySet[Node] = Node.objects.present().select_related(
        "cluster",
        "tuning",
        "standing__pool__assignment__revision__profile",
        "expectation__revision__profile",
    )
    deferred = ("tuning__status", "tuning__observed", "annotations", "conditions", "labels", "taints", "allocatable")
    contents = ("standing__pool__assignment__revision__content", "standing__pool__assignment__revision__source")
    more = ("expectation__revision__content", "expectation__revision__source")
    return restrict(rows.annotate(shown=shown_of_node()), user).defer(*deferred, *contents, *more)


def worst_first(rows: QuerySet[Node]) -> QuerySet[Node]:
    return rows.alias(rank=_worst_first("shown")).order_by("rank", "name", "pk")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Present nodes that agree in all that pages count by."""

    cluster_id: UUID
    cluster: str
    pool_id: int | None
    """The assigned pool that holds them."""
    expected: int | None
    """The revision that they are expected to run."""
    shown: str
    is_joining: bool
    lacking: int
    """How many of them lack a key of their revision."""
    nodes: int


def groups(rows: QuerySet[Node]) -> list[NodeGroup]:
    """Every count of a page about these nodes comes from this one query."""
    columns = ("cluster_id", "cluster__name", "standing__pool_id", "expectation__revision_id", "shown", "joining")
    lacks = Q(standing__isnull=False) & ~Q(standing__lacking=[])
    counted = (
        rows.filter(gone_at=None)
        .order_by()
        .annotate(shown=shown_of_node(), joining=Coalesce("standing__is_joining", Value(False)))
        .values_list(*columns)
        .annotate(lacking=Count("pk", filter=lacks), n=Count("pk"))
    )
    return [NodeGroup(*row) for row in counted]


def groups_of(clusters: Sequence[Cluster]) -> dict[UUID, list[NodeGroup]]:
    """Return the groups of each cluster, counted in one query and once for all parts of a page.

    They are kept on the given rows, which live as long as their request.
    """
    rows: Sequence[Any] = clusters
    if uncounted := [row for row in rows if not hasattr(row, "groups")]:
        by_cluster = by(groups(Node.objects.filter(cluster__in=uncounted)), "cluster_id")
        for row in uncounted:
            row.groups = by_cluster.get(row.pk, [])
    return {row.pk: row.groups for row in rows}


def count(rows: QuerySet[Node]) -> Counts:
    """Present nodes among these by state; every state is named. One query."""
    grouped = (
        rows.filter(gone_at=None).order_by().annotate(at=shown_of_node()).values_list("at").annotate(n=Count("pk"))
    )
    return _full(dict(grouped))


def counted(node_groups: Iterable[NodeGroup]) -> Counts:
    out = dict.fromkeys(SHOWN, 0)
    for group in node_groups:
        out[group.shown] += group.nodes
    return out


def by(node_groups: Iterable[NodeGroup], name: str) -> dict[Any, list[NodeGroup]]:
    """The groups by one of their fields: `cluster_id`, `pool_id`."""
    out: dict[Any, list[NodeGroup]] = defaultdict(list)
    for group in node_groups:
        out[getattr(group, name)].append(group)
    return out


def _full(counts: Mapping[str, int]) -> Counts:
    return {name: counts.get(name, 0) for name in SHOWN}


def causes(rows: QuerySet[Node]) -> list[tuple[str, str, int]]:
    """(cause, file without its line, nodes) of what drifted on these nodes, the most frequent first."""
    drifted = SettingState.objects.filter(
        state=ComplianceState.DRIFTED, node__in=rows.filter(gone_at=None).order_by()
    ).exclude(silent("node__"))
    nodes_by_cause: dict[tuple[str, str], set[int]] = defaultdict(set)
    for node, cause, won_by in drifted.order_by().values_list("node_id", "cause", "won_by"):
        nodes_by_cause[cause, won_by.rpartition(":")[0]].add(node)
    out = [(cause, path, len(pks)) for (cause, path), pks in nodes_by_cause.items()]
    return sorted(out, key=lambda item: (-item[2], item[0], item[1]))


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def settings_of(user: User) -> QuerySet[ShownSetting]:
    """Assigned settings of present nodes, with `shown`."""
    rows = SettingState.objects.filter(node__gone_at=None).annotate(shown=shown_of_setting())
    return restrict(rows.select_related("node__cluster"), user, "node__cluster__").defer(*_HEAVY)


_HEAVY = ("node__annotations", "node__conditions", "node__labels", "node__taints", "node__allocatable")


def changes(user: User) -> QuerySet[SettingChange]:
    rows = SettingChange.objects.select_related("node__cluster").defer(*_HEAVY)
    return restrict(rows, user, "node__cluster__")


def outliers(user: User) -> QuerySet[Outlier]:
    return restrict(Outlier.objects.select_related("cluster", "pool"), user)


def in_outlier(rows: QuerySet[Node], outlier_id: int) -> QuerySet[Node]:
    return rows.filter(Exists(OutlierNode.objects.filter(outlier=outlier_id, node=OuterRef("pk"))))


def assignments(user: User) -> QuerySet[Assignment]:
    rows = Assignment.objects.select_related("pool__cluster", "revision__profile", "set_by")
    return restrict(rows, user, "pool__cluster__").order_by("pool__cluster__name", "pool__name")


def rollout_numbers(ids: Iterable[UUID | None]) -> dict[UUID, int]:
    """Their numbers (R-131), from the room that keeps rollouts. One query."""
    known_ids = {pk for pk in ids if pk is not None}
    return {ref.id: ref.number for ref in hooks.rollouts_named(known_ids)} if known_ids else {}


def plans_for(rows: Collection[Assignment], work: Iterable[hooks.WorkRef]) -> dict[int, hooks.WorkRef]:
    """Return by pool the newest open plan of `work` (newest first) that brings its nodes to the assigned revision."""
    wanted = {row.pool_id: row.revision_id for row in rows}
    out: dict[int, hooks.WorkRef] = {}
    for ref in work:
        if ref.kind == "plan" and ref.revision_id == wanted.get(ref.pool_id):
            out.setdefault(ref.pool_id, ref)
    return out


# ── settings × pools ──────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class Cell:
    """One key in one pool. `counts` sum to the pool's nodes; `unassigned` are those that do not have the key."""

    counts: Counts
    weak: str = ""
    """Why the value that the target wants weakens security; empty when it does not."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def worst(self) -> str:
        return next((str(s) for s in RANK if s != UNASSIGNED and self.counts[s]), UNASSIGNED)


@dataclass(slots=True)
class Column:
    assignment: Assignment
    nodes: int = 0
    unknown: int = 0
    elsewhere: int = 0
    """Known nodes that are not expected to run the target yet."""
    settled: int = 0
    """Known nodes that are."""
    cells: dict[str, Cell] = field(default_factory=dict)


def matrix(rows: Collection[Assignment], node_groups: Iterable[NodeGroup]) -> list[Column]:
    """Return the state of each key of each pool's target. Two queries; only rows that are not compliant are read.

    A cluster of 5,000 nodes has a hundred thousand compliant rows: they are the remainder of the pool.
    """
    columns = {row.pool_id: Column(row) for row in rows}
    lacking = 0
    for group in node_groups:
        if group.pool_id is None or group.pool_id not in columns:
            continue
        column = columns[group.pool_id]
        lacking += group.lacking
        column.nodes += group.nodes
        if group.shown == ComplianceState.UNKNOWN:
            column.unknown += group.nodes
        elif group.expected == column.assignment.revision_id:
            column.settled += group.nodes
        else:
            column.elsewhere += group.nodes
    non_compliant = _non_compliant(list(columns))
    lacked = _lacking(list(columns)) if lacking else Counter()
    for pool, column in columns.items():
        for setting in column.assignment.revision.content.get("settings", ()):
            cell = _cell(column, non_compliant[pool, setting["key"]], lacked[pool, setting["key"]])
            cell.weak = weakening.reason(setting["key"], setting["operator"], setting["value"])
            column.cells[setting["key"]] = cell
    return list(columns.values())


def _cell(column: Column, non_compliant: Mapping[tuple[int | None, str], int], lacking: int) -> Cell:
    """Each part is cut to what is left of the pool: the queries are not one snapshot, and counts always sum."""
    here = column.assignment.revision_id
    counts = _full({})
    settled, elsewhere = column.settled, column.elsewhere
    for (revision, state), node_count in sorted(
        non_compliant.items(), key=lambda item: RANK[ComplianceState(item[0][1])]
    ):
        if revision == here:
            number = min(node_count, settled)
            settled -= number
            counts[state] += number
        elif state == ComplianceState.DRIFTED:
            number = min(node_count, elsewhere)
            elsewhere -= number
            counts[state] += number
    counts[UNASSIGNED] = min(lacking, settled)
    counts[ComplianceState.COMPLIANT] = settled - counts[UNASSIGNED]
    counts[ComplianceState.PENDING] += elsewhere
    counts[ComplianceState.UNKNOWN] += column.unknown
    return Cell(counts)


def _non_compliant(pool_ids: list[int]) -> dict[tuple[int, str], Counter[tuple[int | None, str]]]:
    """Return by pool and key: (expected revision, state) → nodes that are heard."""
    rows = SettingState.objects.exclude(state=ComplianceState.COMPLIANT).exclude(silent("node__"))
    rows = rows.filter(node__standing__pool__in=pool_ids, node__gone_at=None).exclude(
        node__standing__state=ComplianceState.UNKNOWN
    )
    columns = ("node__standing__pool_id", "key", "node__expectation__revision_id", "state")
    out: dict[tuple[int, str], Counter[tuple[int | None, str]]] = defaultdict(Counter)
    for pool, key, revision, state, number in rows.order_by().values_list(*columns).annotate(n=Count("pk")):
        out[pool, key][revision, state] += number
    return out


def _lacking(pool_ids: list[int]) -> Counter[tuple[int, str]]:
    out: Counter[tuple[int, str]] = Counter()
    rows = NodeStanding.objects.filter(pool__in=pool_ids, node__gone_at=None).exclude(lacking=[])
    rows = rows.exclude(silent("node__")).exclude(state=ComplianceState.UNKNOWN)
    rows = rows.filter(node__expectation__revision=F("pool__assignment__revision"))
    for pool, keys in rows.values_list("pool_id", "lacking"):
        for key in keys:
            out[pool, key] += 1
    return out


def keys_of(columns: Iterable[Column]) -> list[str]:
    """Every key, those with a difference first."""
    worst: dict[str, tuple[int, int]] = {}
    for column in columns:
        for key, cell in column.cells.items():
            rank = RANK[cell.worst]
            off = cell.total - cell.counts["compliant"] - cell.counts[UNASSIGNED]
            worst[key] = min(worst.get(key, (9, 0)), (rank, -off))
    return sorted(worst, key=lambda key: (worst[key], key))


# ── what words need ───────────────────────────────────────────────────────────────────────────────────────────────────
def cause_words(cause: str, path: str) -> str:
    """Return the cause in words that follow a number of nodes: `by 99-site.conf`."""
    if path:
        return f"by {path.rpartition('/')[2]}"
    return {
        Cause.CONTENDED: "by another writer",
        Cause.HAND: "by hand",
        Cause.MOVED: "before their step",
        Cause.KERNEL: "clamped by the kernel",
        Cause.REFUSED: "by a refused write",
    }.get(Cause(cause), "for an unknown reason")


def target_of(node: Node) -> Revision | None:
    """Return the revision for a node of `nodes`: its pool's target, else the expected one."""
    standing: NodeStanding | None = getattr(node, "standing", None)
    assignment: Assignment | None = getattr(standing.pool, "assignment", None) if standing and standing.pool else None
    if assignment is not None:
        return assignment.revision
    expectation = getattr(node, "expectation", None)
    return expectation.revision if expectation else None
