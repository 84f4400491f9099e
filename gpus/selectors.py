"""What pages and REST read: the funnel, cells of a heatmap, held-idle pods. A fixed number of queries each."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, GpuPod, Node
from common.clock import now
from gpus import picking, states
from gpus.models import GpuDevice, TelemetrySource
from gpus.picking import Picked
from gpus.samples import Metric
from gpus.states import Tally
from gpus.trust import Meeting

SHOWN = (
    Metric.BUSY, Metric.ENGINE, Metric.SM, Metric.TENSOR, Metric.MEMORY_USED, Metric.MEMORY_FREE, Metric.POWER,
    Metric.TEMPERATURE, Metric.SM_CLOCK, Metric.MAX_SM_CLOCK,
)  # fmt: skip
"""What pages of many GPUs show."""
BOARDS = frozenset({Metric.TEMPERATURE, Metric.MEMORY_TEMPERATURE, Metric.SM_CLOCK, Metric.MAX_SM_CLOCK})
MOST_NAMES = 500
"""Of idle pods whose age and owner are looked up."""


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

    def __post_init__(self) -> None:
        if not self.is_current:
            self.state = states.NONE
        elif not self.holders:
            self.state = states.FREE if self.values else states.NONE
        else:
            is_instance = bool(self.instance)
            self.state = states.of_held(self.values, is_suspect=self.is_suspect, is_instance=is_instance)

    def take_from(self, board: Gpu) -> None:
        """Of an instance: what exporters tell of its board alone. Not its power, which would be counted twice."""
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
    is_out: bool
    gpus: list[Gpu] = field(default_factory=list)

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
    """Each physical GPU of a node once, of those in the last reading."""
    return restrict(GpuDevice.objects.hardware().seen(), user).filter(node=node).order_by("pk")


def nodes(
    user: User, sources: Iterable[TelemetrySource], cluster: Cluster | None = None, *, node: Node | None = None
) -> list[GpuNode]:
    """With their GPUs, by name; `sources` are those of all clusters asked for. Two queries.

    Of one `node` a GPU has all its values, else those of `SHOWN`. MIG instances have what is their board's, but power.
    """
    rows, found = restrict(Node.objects.present(), user), restrict(GpuDevice.objects.all(), user)
    if cluster is not None:
        rows, found = rows.filter(cluster=cluster), found.filter(cluster=cluster)
    if node is not None:
        rows, found = rows.filter(pk=node.pk), found.filter(node=node)
    columns = ("pk", "name", "cluster_id", "gpu_product", "gpu_count", "gpu_allocated", "is_ready", "is_cordoned")
    by_pk = {
        pk: GpuNode(pk, name, cluster_id, product, offered, allocated, is_cordoned or not is_ready)
        for pk, name, cluster_id, product, offered, allocated, is_ready, is_cordoned in rows.order_by(
            "name", "pk"
        ).values_list(*columns)
    }
    current = {source.cluster_id for source in sources if source.is_current}
    live = {pk for pk, one in by_pk.items() if one.cluster_id in current}
    for gpu in _gpus(found, live, list(Metric) if node is not None else SHOWN):
        if gpu.node_id in by_pk:
            by_pk[gpu.node_id].gpus.append(gpu)
    for one in by_pk.values():
        one.gpus.sort(key=lambda gpu: (len(gpu.index), gpu.index, len(gpu.instance), gpu.instance))
    return [one for one in by_pk.values() if one.offered or one.gpus]


def _gpus(found: QuerySet[GpuDevice], live: set[int], metrics: Sequence[Metric]) -> list[Gpu]:
    """`live`: nodes of clusters that were read lately."""
    columns = ("is_board", "missing_since", "node_id", "uuid", "index", "instance", "model", "profile", "is_suspect")
    texts = {name: Cast(name, TextField()) for name in ("holders", "xids")}
    rows = list(
        found.exclude(node=None)
        .annotate(picked=Picked("values", metrics), **{f"{name}_text": text for name, text in texts.items()})
        .order_by()
        .values_list(*columns, "holders_text", "xids_text", "picked")
    )
    picked = picking.read([row[-1] for row in rows])
    names = [str(metric) for metric in metrics]
    known: dict[str, list[list[Any]]] = {}  # neighbours mostly have the same holders
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


def meeting(user: User, cluster: Cluster, found: Iterable[GpuNode]) -> Meeting:
    """How `found`, all nodes of a cluster, meet its telemetry. One query."""
    silent, more, allocated, named = [], [], 0, 0
    for node in found:
        seen = [gpu for gpu in node.gpus if gpu.is_current]
        if seen:
            allocated += node.allocated
            named += sum(bool(gpu.holders) for gpu in seen)
        if len(seen) < node.offered:
            silent.append((node.name, node.offered - len(seen)))
        elif len(seen) > node.offered:
            more.append((node.name, len(seen) - node.offered))
    strays = restrict(GpuDevice.objects.holdable().seen(), user).filter(cluster=cluster, node=None).count()
    return Meeting(_most(silent), _most(more), strays, allocated, named)


def _most(found: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(found, key=lambda one: (-one[1], one[0]))


def total(found: Iterable[GpuNode]) -> Tally:
    tally = Tally()
    for node in found:
        tally.add(node.tally)
    return tally


@dataclass(slots=True)
class IdlePod:
    """A pod all of whose GPUs that telemetry sees do nothing now."""

    node: GpuNode
    namespace: str
    name: str
    gpus: list[Gpu]
    cluster: Cluster | None = None
    started_at: datetime | None = None
    owner: str = ""

    @property
    def has_xid(self) -> bool:
        return any(gpu.xids for gpu in self.gpus)

    @property
    def watts(self) -> float | None:
        known = [gpu.values["power"] for gpu in self.gpus if "power" in gpu.values]
        return sum(known) if known else None


def held_idle(user: User, found: Iterable[GpuNode], clusters: dict[UUID, Cluster]) -> list[IdlePod]:
    """Who holds GPUs that do nothing now, the most GPUs first. One query."""
    idle: dict[tuple[int, str, str], list[Gpu]] = defaultdict(list)
    by_pk = {node.pk: node for node in found}
    for node in by_pk.values():
        for gpu in node.gpus:
            if gpu.state == states.HELD:
                for namespace, name in {(one[0], one[1]) for one in gpu.holders}:
                    idle[node.pk, namespace, name].append(gpu)
    names = sorted({name for _, _, name in idle})[:MOST_NAMES]
    pods = restrict(GpuPod.objects.filter(name__in=names), user)
    known = {(pod.cluster_id, pod.node_name, pod.namespace, pod.name): pod for pod in pods}
    rows = []
    for (pk, namespace, name), gpus in idle.items():
        row = IdlePod(by_pk[pk], namespace, name, gpus, clusters.get(by_pk[pk].cluster_id))
        if pod := known.get((row.node.cluster_id, row.node.name, namespace, name)):
            row.started_at, row.owner = pod.started_at, f"{pod.owner_kind} {pod.owner_name}".strip()
        rows.append(row)
    return sorted(rows, key=lambda row: (-len(row.gpus), row.started_at or now(), row.namespace, row.name))
