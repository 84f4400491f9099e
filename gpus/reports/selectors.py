"""Queries for pages and REST: the funnel, heatmap cells, GPUs that are ill. A fixed number of queries each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Sum, TextField, When
from django.db.models.functions import Cast, Coalesce, Greatest

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, Node
from gpus.metrics import states
from gpus.metrics.samples import Metric
from gpus.metrics.states import Tally
from gpus.models import GpuDevice, NodeTally, TelemetrySource
from gpus.reports.data_quality import TelemetryMismatch
from gpus.storage import json_fields
from gpus.storage.json_fields import Picked
from gpus.storage.node_snapshot import model_name

SHOWN = (
    Metric.BUSY, Metric.ENGINE, Metric.SM, Metric.TENSOR, Metric.MEMORY_USED, Metric.MEMORY_FREE, Metric.POWER,
    Metric.TEMPERATURE, Metric.SM_CLOCK, Metric.MAX_SM_CLOCK,
)  # fmt: skip
"""What pages of many GPUs show."""
BOARDS = frozenset({Metric.TEMPERATURE, Metric.MEMORY_TEMPERATURE, Metric.SM_CLOCK, Metric.MAX_SM_CLOCK})
MOST_ILL = 500
_COLUMNS = (
    "pk",
    "name",
    "cluster_id",
    "gpu_product",
    "gpu_count",
    "gpu_allocated",
    "gpu_virtual",
    "is_ready",
    "is_cordoned",
)
"""Of a node."""
HEAVY = ("annotations", "conditions", "labels", "taints", "allocatable")
"""Of a node: what only its own page shows."""


@dataclass(slots=True)
class Gpu:
    """A GPU that pods can hold, as the last reading says."""

    node_id: int
    uuid: str
    index: str
    instance: str
    model: str
    profile: str
    values: dict[str, float]
    holders: list[list[str]]
    xids: list[list[Any]]
    is_suspect: bool
    is_current: bool
    """Whether this says how things are now: the last reading has it, and is not too old."""
    state: str = ""
    board_watts: float | None = None
    """Power of the board that an instance is a part of: no part of its own values, for it would count twice."""

    def __post_init__(self) -> None:
        if not self.is_current:
            self.state = states.NONE
        elif not self.holders:
            self.state = states.FREE if self.values else states.NONE
        else:
            is_instance = bool(self.instance)
            self.state = states.of_held(self.values, is_suspect=self.is_suspect, is_instance=is_instance)

    def take_from(self, board: Gpu) -> None:
        """Fill an instance's values that exporters report for its board alone."""
        self.board_watts = board.values.get(Metric.POWER) if board.is_current else None
        self.values |= {name: value for name, value in board.values.items() if name in BOARDS and board.is_current}
        self.xids = self.xids or board.xids

    @property
    def name(self) -> str:
        return f"{self.index}.{self.instance}" if self.instance else self.index


@dataclass(slots=True)
class GpuNode:
    """A present node that offers GPUs or that telemetry knows GPUs of."""

    pk: int
    name: str
    cluster_id: UUID
    product: str
    offered: int
    allocated: int
    virtual: int
    is_out: bool
    gpus: list[Gpu] = field(default_factory=list)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only where they were asked for."""

    @property
    def tally(self) -> Tally:
        current = [gpu for gpu in self.gpus if gpu.is_current]
        return Tally.of_node(
            offered=self.offered,
            allocated=self.allocated,
            is_out=self.is_out,
            held=(gpu.state for gpu in current if gpu.holders),
            free=sum(not gpu.holders and gpu.state == states.FREE for gpu in current),
        )


def sources(user: User) -> QuerySet[TelemetrySource]:
    return restrict(TelemetrySource.objects.select_related("cluster"), user)


def devices(user: User) -> QuerySet[GpuDevice]:
    """GPUs that pods can hold, those that the last reading lacks among them."""
    return restrict(GpuDevice.objects.holdable().select_related("cluster", "node"), user)


def hardware(user: User, node: Node) -> QuerySet[GpuDevice]:
    """Each physical GPU of a node once, of those in the last reading, with the node's pace."""
    rows = restrict(GpuDevice.objects.hardware().seen().select_related("node__pace"), user)
    return rows.defer(*(f"node__{name}" for name in HEAVY)).filter(node=node).order_by("pk")


def nodes(
    user: User,
    sources: Iterable[TelemetrySource],
    cluster: Cluster | None = None,
    *,
    node: Node | None = None,
    with_labels: bool = False,
) -> list[GpuNode]:
    """Return nodes with their GPUs, by name; two queries, or one for a `node` at hand.

    `sources` are those of all clusters asked for. For one `node`, which the user may see, a GPU has all its values,
    else those of `SHOWN`. MIG instances have what is their board's, but power.
    """
    rows, device_rows = restrict(Node.objects.present(), user), restrict(GpuDevice.objects.all(), user)
    if cluster is not None:
        rows, device_rows = rows.filter(cluster=cluster), device_rows.filter(cluster=cluster)
    columns = (*_COLUMNS, "labels") if with_labels else _COLUMNS
    known: Iterable[tuple[Any, ...]] = rows.order_by("name", "pk").values_list(*columns)
    if node is not None:
        known, device_rows = [tuple(getattr(node, column) for column in columns)], device_rows.filter(node=node)
    by_pk = {
        pk: GpuNode(pk, name, cluster_id, product, offered, allocated, virtual, is_out or not is_ready, [], *labels)
        for pk, name, cluster_id, product, offered, allocated, virtual, is_ready, is_out, *labels in known
    }
    current = {source.cluster_id for source in sources if source.is_current}
    live = {pk for pk, gpu_node in by_pk.items() if gpu_node.cluster_id in current}
    for gpu in _gpus(device_rows, live, list(Metric) if node is not None else SHOWN):
        if gpu.node_id in by_pk:
            by_pk[gpu.node_id].gpus.append(gpu)
    for gpu_node in by_pk.values():
        gpu_node.gpus.sort(key=lambda gpu: (len(gpu.index), gpu.index, len(gpu.instance), gpu.instance))
    return [gpu_node for gpu_node in by_pk.values() if gpu_node.offered or gpu_node.gpus]


def _gpus(device_rows: QuerySet[GpuDevice], live: set[int], metrics: Sequence[Metric]) -> list[Gpu]:
    """`live`: nodes of clusters that were read lately."""
    columns = ("is_board", "missing_since", "node_id", "uuid", "index", "instance", "model", "profile", "is_suspect")
    texts = {name: Cast(name, TextField()) for name in ("holders", "xids")}
    rows = list(
        device_rows.exclude(node=None)
        .annotate(picked=Picked("values", metrics), **{f"{name}_text": text for name, text in texts.items()})
        .order_by()
        .values_list(*columns, "holders_text", "xids_text", "picked")
    )
    picked = json_fields.parse([row[-1] for row in rows])
    names = [str(metric) for metric in metrics]
    known: dict[str, list[list[Any]]] = {}  # neighbors mostly have the same holders
    gpus: list[Gpu] = []
    boards: dict[tuple[int, str], Gpu] = {}
    for row, (_, *numbers) in zip(rows, picked, strict=True):
        is_board, missing, node_id, uuid, index, instance, model, profile, is_suspect, held, ill, _ = row
        values = {name: value for name, value in zip(names, numbers, strict=True) if value is not None}
        holders = known.get(held)
        if holders is None:
            holders = known[held] = json.loads(held)
        xids_ = known.get(ill)
        if xids_ is None:
            xids_ = known[ill] = json.loads(ill)
        is_current = missing is None and node_id in live
        gpu = Gpu(
            node_id, uuid, index, instance, model, profile, values, holders, xids_, is_suspect, is_current=is_current
        )
        if is_board:
            boards[node_id, uuid] = gpu
        else:
            gpus.append(gpu)
    for gpu in gpus:
        if gpu.instance and (board := boards.get((gpu.node_id, gpu.uuid))):
            gpu.take_from(board)
    return gpus


def strays() -> Coalesce:
    """Return an expression that counts a source's devices in its last reading on no known node."""
    lost = GpuDevice.objects.holdable().seen().filter(cluster=OuterRef("cluster"), node=None).order_by()
    return Coalesce(Subquery(lost.values("cluster").annotate(n=Count("pk")).values("n")), 0)


def meeting(gpu_nodes: Iterable[GpuNode], strays: int) -> TelemetryMismatch:
    """Compare `gpu_nodes`, all nodes of a cluster, with its telemetry."""
    return _compared(
        (
            (node.name, node.offered, node.allocated, node.virtual, len(seen), sum(bool(gpu.holders) for gpu in seen))
            for node in gpu_nodes
            for seen in [[gpu for gpu in node.gpus if gpu.is_current]]
        ),
        strays,
    )


def meetings(user: User, sources: Iterable[TelemetrySource]) -> dict[UUID, TelemetryMismatch]:
    """Return the same of each cluster that was read lately, without any device's row. Three queries."""
    current = [source.cluster_id for source in sources if source.is_current]
    live = restrict(GpuDevice.objects.holdable().seen(), user).filter(cluster__in=current).order_by()
    counted = live.values("node").annotate(devices=Count("pk"), named=Count("pk", filter=~Q(holders=[])))
    seen = {row["node"]: (row["devices"], row["named"]) for row in counted}
    lost = dict(live.filter(node=None).values_list("cluster").annotate(devices=Count("pk")))
    by_cluster: dict[UUID, list[tuple[str, int, int, int, int, int]]] = {pk: [] for pk in current}
    nodes = restrict(Node.objects.present(), user).filter(cluster__in=current).order_by("name")
    columns = ("pk", "cluster_id", "name", "gpu_count", "gpu_allocated", "gpu_virtual")
    for pk, cluster, name, offered, allocated, virtual in nodes.values_list(*columns):
        known, holding = seen.get(pk, (0, 0))
        if offered or known:
            by_cluster[cluster].append((name, offered, allocated, virtual, known, holding))
    return {pk: _compared(rows, lost.get(pk, 0)) for pk, rows in by_cluster.items()}


def _compared(nodes: Iterable[tuple[str, int, int, int, int, int]], strays: int) -> TelemetryMismatch:
    """`nodes`: name; GPUs offered, allocated, and for virtual machines; devices in telemetry, and those with a pod."""
    silent, virtual, more, allocated, named = [], [], [], 0, 0
    for name, offered, given, machines, seen, holding in nodes:
        if seen:
            allocated += given
            named += holding
        # What telemetry lacks is what virtual machines have, first of all: no exporter of the host reports that.
        if lacking := max(0, offered - seen):
            hidden = min(lacking, machines)
            virtual += [(name, hidden)] if hidden else []
            silent += [(name, lacking - hidden)] if lacking > hidden else []
        elif seen > offered:
            more.append((name, seen - offered))
    return TelemetryMismatch(_most(silent), _most(virtual), _most(more), strays, allocated, named)


def _most(counts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counts, key=lambda count: (-count[1], count[0]))


def total(gpu_nodes: Iterable[GpuNode]) -> Tally:
    tally = Tally()
    for node in gpu_nodes:
        tally.add(node.tally)
    return tally


# ── by groups of nodes, without any device's row ──────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ModelGroup:
    """Nodes of one cluster and product."""

    cluster_id: UUID
    model: str
    nodes: int
    tally: Tally


def groups(user: User, sources: Iterable[TelemetrySource], cluster: Cluster | None = None) -> list[ModelGroup]:
    """Return the funnel of `Tally.of_node`, added up by the database. One query for any number of nodes."""
    current = [source.cluster_id for source in sources if source.is_current]
    rows = restrict(Node.objects.present(), user)
    if cluster is not None:
        rows = rows.filter(cluster=cluster)
    seen = {
        f"seen_{name}": Case(
            When(cluster__in=current, then=Coalesce(F(f"gpu_tally__{name}"), 0)),
            default=0,
            output_field=IntegerField(),
        )
        for name in NodeTally.SEEN
    }
    held = F("seen_effective") + F("seen_low") + F("seen_held") + F("seen_held_unknown")
    is_out = Q(is_cordoned=True) | Q(is_ready=False)
    grouped: Any = (
        rows.order_by()
        .alias(**seen)
        .alias(all_held=Greatest(F("gpu_allocated"), held))
        .alias(all_offered=Greatest(F("gpu_count"), F("all_held"), held + F("seen_free")))
        .filter(all_offered__gt=0)
        .alias(rest=F("all_offered") - F("all_held"))
        .alias(blind=Greatest(F("rest") - F("seen_free"), 0))
        .values("cluster_id", "gpu_product")
        .annotate(
            nodes=Count("pk"),
            effective=Sum("seen_effective"),
            low=Sum("seen_low"),
            held=Sum("seen_held"),
            held_unknown=Sum(F("all_held") - F("seen_effective") - F("seen_low") - F("seen_held")),
            out=Sum(Case(When(is_out, then=F("rest")), default=0)),
            free=Sum(Case(When(is_out, then=0), default=F("rest") - F("blind"))),
            free_unknown=Sum(Case(When(is_out, then=0), default=F("blind"))),
        )
    )
    return [_group(row) for row in grouped]


def _group(row: dict[str, Any]) -> ModelGroup:
    counts = {
        states.EFFECTIVE: row["effective"],
        states.LOW: row["low"],
        states.HELD: row["held"],
        states.FREE: row["free"],
        states.OUT: row["out"],
        states.NONE: row["held_unknown"] + row["free_unknown"],
    }
    tally = Tally(Counter(counts), held_unknown=row["held_unknown"])
    return ModelGroup(row["cluster_id"], model_name(row["gpu_product"]), row["nodes"], tally)


def ill(user: User, sources: Iterable[TelemetrySource]) -> Iterator[tuple[Node, Gpu]]:
    """GPUs of nodes of which one reported an error that asks for more than a look at the application. One query."""
    current = [source.cluster_id for source in sources if source.is_current]
    ill_devices = restrict(GpuDevice.objects.holdable().seen(), user).filter(
        node__gpu_tally__ill__gt=0, cluster__in=current
    )
    for device in ill_devices.select_related("node").order_by("node_name", "index", "instance")[:MOST_ILL]:
        assert device.node is not None
        yield (
            device.node,
            Gpu(
                node_id=device.node.pk,
                uuid=device.uuid,
                index=device.index,
                instance=device.instance,
                model=device.model,
                profile=device.profile,
                values=device.values,
                holders=device.holders,
                xids=device.xids,
                is_suspect=device.is_suspect,
                is_current=True,
            ),
        )
