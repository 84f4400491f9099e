"""Schedulable capacity: free GPUs by node, the largest gang, fragmentation, and the pods that wait.

All of it is what the API server reports, as the scheduler sees it: what nodes offer less what pods hold, on nodes that
are ready and not cordoned. MIG instances of each profile are a resource of their own, which no pod that requests a GPU
can use; so are shares of GPUs (time slicing, MPS), unless they have the name of whole ones. Taints, quotas and
priorities are the scheduler's to judge: a gang that fits here may still wait for them.
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
from clusters import objects
from clusters.models import Cluster, GpuPod, Node
from clusters.sharing import gpu_groups
from gpus.capacity.pending import SEVERAL, total
from gpus.models import Waiting
from gpus.storage.node_snapshot import model_name

SIZES = (1, 2, 4, 8, 16)
"""GPUs of a pod, as they are asked for."""
BY_CLAIM = ", by ResourceClaim"
"""End of the profile of what only claims are given: a pod that requests nvidia.com/gpu cannot use it."""
GPU_SHARES = "shared, as nvidia.com/gpu"
"""Profile of shares that have the resource name of whole GPUs: the scheduler gives them to pods that want a GPU."""
MOST_PODS = 50
MOST_NODES = 100
Room = Mapping[int, int]
"""By free GPUs, how many nodes have just so many."""


@dataclass(frozen=True, slots=True)
class Free:
    """A node that takes pods, or could. One that offers instances of several profiles is several."""

    pk: int
    name: str
    model: str
    profile: str
    """Of parts or shares of GPUs; empty: whole GPUs."""
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
        """Percentage of the free GPUs that are stranded."""
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
    profile: str
    """As gpus.capacity.pending.Gang has it."""
    fits: bool
    """By free GPUs alone."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Model:
    """Nodes of one model of GPU, or of its parts of one profile: gangs are not spread over several.

    What is called a GPU here is an instance or a share where there is a profile.
    """

    name: str
    profile: str
    largest: int
    """GPUs of a node that has most."""
    by_free: list[tuple[int, int]]
    """[(free GPUs, nodes that have just so many)], from the largest down to 0; of instances only those that are."""
    takes: int
    """Nodes that take pods."""
    free: int
    offered: int
    sizes: list[Size]

    @property
    def nodes(self) -> int:
        """Number of nodes that have some free and take pods."""
        return sum(nodes for free, nodes in self.by_free if free)

    @property
    def whole(self) -> Size | None:
        """Size of pods that take a whole node; None for parts."""
        return None if self.profile else next((size for size in self.sizes if size.gpus == self.largest), None)


def nodes(user: User, cluster: Cluster) -> list[Free]:
    """Those that offer GPUs, by name. Two queries, three where some are split or shared."""
    split = _split(user, cluster)
    columns = ("pk", "name", "gpu_product", "gpu_count", "gpu_allocated", "is_ready", "is_cordoned")
    rows = restrict(Node.objects.present().filter(gpu_count__gt=0), user).filter(cluster=cluster).order_by("name")
    free_on_nodes = []
    for pk, name, product, count, held, ready, cordoned in rows.values_list(*columns):
        for profile, (offered, used) in split.get(name, {"": (count, held)}).items():
            if offered > 0:
                free = max(0, offered - max(0, used))
                free_on_nodes.append(Free(pk, name, model_name(product), profile, offered, free, cordoned or not ready))
    return free_on_nodes


def _split(user: User, cluster: Cluster) -> dict[str, dict[str, tuple[int, int]]]:
    """Return by node and profile: units offered, and held by pods; of nodes that split or share some of their GPUs.

    Units are what the scheduler counts: of a shared GPU its shares.
    """
    present = Node.objects.present()
    divided = present.split() | present.exclude(gpu_shares={}) | present.exclude(gpus_by_claim={})
    offered: dict[str, Counter[str]] = {}
    whole: dict[str, str] = {}
    shown = restrict(divided, user).filter(cluster=cluster).order_by("name")
    for node in shown.only(
        "name", "allocatable", "gpu_count", "gpu_plugin", "gpu_virtual", "gpu_shares", "gpus_by_claim"
    ):
        parts = node.plugin_instances
        whole[node.name] = GPU_SHARES if "" in node.gpu_shares and not parts[objects.SHARED] else ""
        units = objects.gpu_count(node.allocatable) if node.gpu_shares else node.gpu_count
        units = node.gpu_plugin if node.gpus_by_claim and not node.gpu_shares else units
        if not node.gpu_shares:  # what is in capacity alone
            units -= node.gpu_virtual - objects.virtual_count(node.allocatable)
        by_claim = Counter({_by_claim(profile): count for profile, count in node.gpus_by_claim.items()})
        offered[node.name] = parts + Counter({whole[node.name]: units - parts.total()}) + by_claim
    held: dict[str, Counter[str]] = defaultdict(Counter)
    if offered:
        pods = restrict(GpuPod.objects.filter(cluster=cluster, node_name__in=offered), user).order_by()
        named: dict[str, dict[str, str]] = defaultdict(dict)
        for name, gpus, parts_held, devices in pods.values_list("node_name", "gpus", "mig", "devices"):
            held[name].update(parts_held)
            held[name][whole[name]] += gpus - sum(parts_held.values())
            held[name].subtract(profile or whole[name] for profile in devices.values())
            named[name] |= devices
        for name, devices in named.items():
            held[name].update(
                whole[name] if key.startswith(gpu_groups.KEY) else _by_claim(profile)
                for key, profile in devices.items()
            )
        for name, parts in offered.items():
            if not parts[whole[name]]:  # a driver gives devices to such requests, too
                held[name][_by_claim("")] += held[name][whole[name]]
    return {
        name: {profile: (count, held[name][profile]) for profile, count in sorted(parts.items())}
        for name, parts in offered.items()
    }


def _by_claim(profile: str) -> str:
    return (profile or "whole GPUs") + BY_CLAIM


def models(nodes_free: Iterable[Free]) -> list[Model]:
    by_kind: dict[tuple[str, str], list[Free]] = defaultdict(list)
    for node in nodes_free:
        by_kind[node.model, node.profile].append(node)
    return [_model(*kind, by_kind[kind]) for kind in sorted(by_kind)]


def _model(name: str, profile: str, nodes_free: list[Free]) -> Model:
    takes = [node.free for node in nodes_free if not node.is_out]
    counts, largest = Counter(takes), max(node.offered for node in nodes_free)
    # A pod is given instances of its own; several of them cannot work together as GPUs do.
    sizes = [1] if profile else sorted({*(size for size in SIZES if size <= largest), largest})
    by_free = [(free, counts[free]) for free in range(largest, -1, -1)]
    return Model(
        name,
        profile,
        largest,
        [(free, nodes) for free, nodes in by_free if nodes or not profile],
        len(takes),
        sum(takes),
        sum(node.offered for node in nodes_free),
        [size_of(gpus, counts) for gpus in sizes],
    )


def size_of(gpus: int, room: Room) -> Size:
    """Count the pods of `gpus` GPUs that could start at once; free GPUs beyond those are stranded."""
    pods = sum(count * (free // gpus) for free, count in room.items())
    return Size(gpus, pods, sum(free * count for free, count in room.items()) - pods * gpus)


def can_start(pods: Iterable[Sequence[int]], room: Room) -> bool:
    """Return whether a whole gang fits at once: largest pods first, each on the fullest node that still takes it.

    Best fit is no proof to the contrary for mixed sizes that do not divide each other; GPUs come in powers of two,
    for which it is exact. A node that took a pod and takes another is the fullest that does, so nodes go by the dozen:
    the cost is that of the different sizes, not of pods and nodes.
    """
    rest = Counter(room)
    return all(_placed(count, size, rest) for count, size in sorted(pods, key=lambda pair: -pair[1]))


def _placed(count: int, size: int, rest: Counter[int]) -> bool:
    for free in sorted(room for room in rest if room >= size):
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
    """Four queries, five where some are split or shared."""
    free_on_nodes = nodes(user, cluster)
    by_model, roomy = models(free_on_nodes), [node for node in free_on_nodes if node.free]
    row = restrict(Waiting.objects.filter(cluster=cluster), user).first()
    pods = restrict(GpuPod.objects.filter(cluster=cluster, node_name=""), user).order_by("namespace", "name")
    unplaced = list(pods[: MOST_PODS + 1])
    rooms: dict[str, list[Room]] = defaultdict(list)
    for model in by_model:
        rooms["" if model.profile == GPU_SHARES else model.profile].append(dict(model.by_free))
    whole, instances = (
        [model for model in by_model if not model.profile],
        [model for model in by_model if model.profile],
    )
    return {
        "cluster": cluster,
        "nodes": sorted(roomy, key=lambda node: (node.is_out, bool(node.profile), -node.free, node.name))[:MOST_NODES],
        "node_count": len(roomy),
        "models": by_model,
        "whole": whole,
        "instances": instances,
        "free": sum(model.free for model in whole),
        "offered": sum(model.offered for model in whole),
        "out": sum(node.free for node in free_on_nodes if node.is_out and not node.profile),
        "instances_free": sum(model.free for model in instances),
        "instances_offered": sum(model.offered for model in instances),
        "has_gpu_shares": any(model.profile == GPU_SHARES for model in instances),
        "largest": max((size.gang for model in by_model if (size := model.whole)), default=0),
        "waiting": row,
        "gangs": [_waiter(gang, rooms) for gang in row.gangs] if row else [],
        "unplaced": unplaced[:MOST_PODS],
        "more_unplaced": len(unplaced) > MOST_PODS,
    }


def _waiter(gang: dict[str, Any], by_profile: Mapping[str, list[Room]]) -> Waiter:
    wanted, pods, profile = total(gang["pods"]), gang["pods"], gang.get("profile", "")
    rooms, what = by_profile.get(profile, []), f"instances of {profile}" if profile else "GPUs"
    fits = any(can_start(pods, room) for room in rooms)
    one_model = max((size_of(1, room).gang for room in rooms), default=0)
    if profile == SEVERAL:
        verdict = "It requests GPUs of several kinds; whether they are free together is not evaluated."
    elif fits:
        verdict = f"Enough {what} are free: it waits for quota, priority, or its scheduler."
    elif wanted > one_model:
        verdict = f"It requests {wanted:,} {what}; {one_model:,} of one model are free."
    else:
        most = max((size_of(max(each for _, each in pods), room).gang for room in rooms), default=0)
        verdict = f"Enough are free, but scattered: pods of this size could have {most:,} GPUs at once."
    since = parse_datetime(gang["since"])
    fields = {name: gang[name] for name in ("system", "kind", "namespace", "name", "queue", "pods", "reason")}
    return Waiter(**fields, profile=profile, gpus=wanted, since=since, fits=fits, verdict=verdict)
