"""What could start now: free GPUs by node, the largest gang, how much fragmentation keeps from it, and who waits.

By the API server's word, which is the scheduler's: what nodes offer less what pods hold, on nodes that are ready and
not cordoned. Taints, quotas and priorities are the scheduler's to judge: a gang that fits here may still wait for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, GpuPod, Node
from gpus.looking import model_name
from gpus.models import Waiting
from gpus.waiting import total

SIZES = (1, 2, 4, 8, 16)
"""GPUs of a pod, as they are asked for."""
MOST_PODS = 50
MOST_NODES = 100
Room = Mapping[int, int]
"""By free GPUs, how many nodes have just so many."""


@dataclass(frozen=True, slots=True)
class Free:
    """A node that takes pods, or could."""

    pk: int
    name: str
    model: str
    offered: int
    free: int
    is_out: bool
    """Cordoned or not ready: its free GPUs count nowhere."""


@dataclass(frozen=True, slots=True)
class Size:
    """Pods of one size."""

    gpus: int
    pods: int
    """How many could start at once."""
    stranded: int
    """Free GPUs that are of no use to such pods."""

    @property
    def gang(self) -> int:
        return self.pods * self.gpus

    @property
    def stranded_percent(self) -> int:
        """Of the free GPUs."""
        return round(100 * self.stranded / (self.gang + self.stranded)) if self.stranded else 0


@dataclass(frozen=True, slots=True)
class Waiter:
    system: str
    kind: str
    namespace: str
    name: str
    queue: str
    pods: list[list[int]]
    gpus: int
    since: datetime | None
    reason: str
    fits: bool
    """By free GPUs alone."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Model:
    """Nodes of one model of GPU: gangs are not spread over several."""

    name: str
    largest: int
    """GPUs of a node that has most."""
    by_free: list[tuple[int, int]]
    """[(free GPUs, nodes that have just so many)], from the largest down to 0."""
    takes: int
    """Nodes that take pods."""
    free: int
    offered: int
    sizes: list[Size]

    @property
    def whole(self) -> Size | None:
        """Pods of whole nodes."""
        return next((size for size in self.sizes if size.gpus == self.largest), None)


def nodes(user: User, cluster: Cluster) -> list[Free]:
    """Those that offer GPUs, by name. One query."""
    columns = ("pk", "name", "gpu_product", "gpu_count", "gpu_allocated", "is_ready", "is_cordoned")
    rows = restrict(Node.objects.present().filter(gpu_count__gt=0), user).filter(cluster=cluster).order_by("name")
    return [
        Free(pk, name, model_name(product), count, max(0, count - held), cordoned or not ready)
        for pk, name, product, count, held, ready, cordoned in rows.values_list(*columns)
    ]


def models(found: Iterable[Free]) -> list[Model]:
    by_model: dict[str, list[Free]] = defaultdict(list)
    for node in found:
        by_model[node.model].append(node)
    return [_model(name, by_model[name]) for name in sorted(by_model)]


def _model(name: str, found: list[Free]) -> Model:
    takes = [node.free for node in found if not node.is_out]
    counts, largest = Counter(takes), max(node.offered for node in found)
    sizes = sorted({*(size for size in SIZES if size <= largest), largest})
    return Model(
        name,
        largest,
        [(free, counts[free]) for free in range(largest, -1, -1)],
        len(takes),
        sum(takes),
        sum(node.offered for node in found),
        [size_of(gpus, counts) for gpus in sizes],
    )


def size_of(gpus: int, room: Room) -> Size:
    """How many pods of so many GPUs could start at once; what is free besides is stranded."""
    pods = sum(count * (free // gpus) for free, count in room.items())
    return Size(gpus, pods, sum(free * count for free, count in room.items()) - pods * gpus)


def can_start(pods: Iterable[Sequence[int]], room: Room) -> bool:
    """Whether all of a gang finds room at once: the largest pods first, each on the fullest node that still takes it.

    Best fit is no proof to the contrary for mixed sizes that do not divide each other; GPUs come in powers of two,
    for which it is exact. A node that took a pod and takes another is the fullest that does, so nodes go by the dozen:
    the cost is that of the different sizes, not of pods and nodes.
    """
    rest = Counter(room)
    return all(_placed(count, size, rest) for count, size in sorted(pods, key=lambda pair: -pair[1]))


def _placed(count: int, size: int, rest: Counter[int]) -> bool:
    for free in sorted(one for one in rest if one >= size):
        each = free // size
        full = min(rest[free], count // each)
        rest[free] -= full
        rest[free % size] += full
        count -= full * each
        if count and rest[free]:  # one more node takes what is left
            rest[free] -= 1
            rest[free - count * size] += 1
            count = 0
    return not count


def page(user: User, cluster: Cluster) -> dict[str, Any]:
    """Three queries."""
    found = nodes(user, cluster)
    by_model, roomy = models(found), [node for node in found if node.free]
    row = restrict(Waiting.objects.filter(cluster=cluster), user).first()
    pods = restrict(GpuPod.objects.filter(cluster=cluster, node_name=""), user).order_by("namespace", "name")
    unplaced = list(pods[: MOST_PODS + 1])
    rooms: list[Room] = [dict(model.by_free) for model in by_model]
    return {
        "cluster": cluster,
        "nodes": sorted(roomy, key=lambda node: (node.is_out, -node.free, node.name))[:MOST_NODES],
        "node_count": len(roomy),
        "models": by_model,
        "free": sum(model.free for model in by_model),
        "offered": sum(model.offered for model in by_model),
        "out": sum(node.free for node in found if node.is_out),
        "largest": max((size.gang for model in by_model if (size := model.whole)), default=0),
        "waiting": row,
        "gangs": [_waiter(gang, rooms) for gang in row.gangs] if row else [],
        "unplaced": unplaced[:MOST_PODS],
        "more_unplaced": len(unplaced) > MOST_PODS,
    }


def _waiter(gang: dict[str, Any], rooms: list[Room]) -> Waiter:
    wanted, pods = total(gang["pods"]), gang["pods"]
    fits = any(can_start(pods, room) for room in rooms)
    one_model = max((size_of(1, room).gang for room in rooms), default=0)
    if fits:
        verdict = "Enough GPUs are free: it waits for quota, priority, or its scheduler."
    elif wanted > one_model:
        verdict = f"It wants {wanted:,} GPUs; {one_model:,} of one model are free."
    else:
        most = max((size_of(max(each for _, each in pods), room).gang for room in rooms), default=0)
        verdict = f"Enough are free, but scattered: pods of this size could have {most:,} GPUs at once."
    since = parse_datetime(gang["since"])
    fields = {name: gang[name] for name in ("system", "kind", "namespace", "name", "queue", "pods", "reason")}
    return Waiter(**fields, gpus=wanted, since=since, fits=fits, verdict=verdict)
