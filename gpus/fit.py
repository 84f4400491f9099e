"""What could start now: free GPUs by node, the largest gang, how much fragmentation keeps from it, and who waits.

By the API server's word, which is the scheduler's: what nodes offer less what pods hold, on nodes that are ready and
not cordoned. MIG instances of each profile are a resource of their own, which no pod that wants a GPU can use. Taints,
quotas and priorities are the scheduler's to judge: a gang that fits here may still wait for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, GpuPod, Node
from gpus.looking import model_name
from gpus.models import Waiting
from gpus.waiting import SEVERAL, total

SIZES = (1, 2, 4, 8, 16)
"""GPUs of a pod, as they are asked for."""
MOST_PODS = 50
MOST_NODES = 100


@dataclass(frozen=True, slots=True)
class Free:
    """A node that takes pods, or could. One that offers instances of several profiles is several."""

    pk: int
    name: str
    model: str
    profile: str
    """Of MIG instances; empty: whole GPUs."""
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
    profile: str
    """As gpus.waiting.Gang has it."""
    fits: bool
    """By free GPUs alone."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Model:
    """Nodes of one model of GPU, or of its MIG instances of one profile: gangs are not spread over several.

    What is called a GPU here is an instance where there is a profile.
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
        """That have some free, and take pods."""
        return sum(nodes for free, nodes in self.by_free if free)

    @property
    def whole(self) -> Size | None:
        """Pods of whole nodes; of instances nobody wants a node's worth."""
        return None if self.profile else next((size for size in self.sizes if size.gpus == self.largest), None)


def nodes(user: User, cluster: Cluster) -> list[Free]:
    """Those that offer GPUs, by name. Two queries, three where MIG splits some."""
    split = _split(user, cluster)
    columns = ("pk", "name", "gpu_product", "gpu_count", "gpu_allocated", "is_ready", "is_cordoned")
    rows = restrict(Node.objects.present().filter(gpu_count__gt=0), user).filter(cluster=cluster).order_by("name")
    found = []
    for pk, name, product, count, held, ready, cordoned in rows.values_list(*columns):
        parts = split.get(name, {})
        whole = count - sum(offered for offered, _ in parts.values()), held - sum(used for _, used in parts.values())
        for profile, (offered, used) in ({"": whole} | parts).items():
            if offered > 0:
                free = max(0, offered - max(0, used))
                found.append(Free(pk, name, model_name(product), profile, offered, free, cordoned or not ready))
    return found


def _split(user: User, cluster: Cluster) -> dict[str, dict[str, tuple[int, int]]]:
    """By node, of each profile: instances offered, and held by pods."""
    rows = restrict(Node.objects.present().split(), user).filter(cluster=cluster).order_by("name")
    offered = {node.name: node.instances for node in rows.only("name", "allocatable")}
    held: dict[str, Counter[str]] = defaultdict(Counter)
    if offered:
        pods = restrict(GpuPod.objects.filter(cluster=cluster, node_name__in=offered), user).order_by()
        for name, mig in pods.values_list("node_name", "mig"):
            held[name].update(mig)
    return {
        name: {profile: (count, held[name][profile]) for profile, count in parts.items()}
        for name, parts in offered.items()
    }


def models(found: Iterable[Free]) -> list[Model]:
    by_kind: dict[tuple[str, str], list[Free]] = defaultdict(list)
    for node in found:
        by_kind[node.model, node.profile].append(node)
    return [_model(*kind, by_kind[kind]) for kind in sorted(by_kind)]


def _model(name: str, profile: str, found: list[Free]) -> Model:
    takes = [node.free for node in found if not node.is_out]
    counts, largest = Counter(takes), max(node.offered for node in found)
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
        sum(node.offered for node in found),
        [size_of(gpus, takes) for gpus in sizes],
    )


def size_of(gpus: int, free: Iterable[int]) -> Size:
    """How many pods of so many GPUs could start at once on nodes with these free; the rest of them is stranded."""
    rest = list(free)
    pods = sum(one // gpus for one in rest)
    return Size(gpus, pods, sum(rest) - pods * gpus)


def can_start(pods: Iterable[Iterable[int]], free: Iterable[int]) -> bool:
    """Whether all of a gang finds room at once: the largest pods first, each on the fullest node that still takes it.

    Best fit is no proof to the contrary for mixed sizes that do not divide each other; GPUs come in powers of two,
    for which it is exact.
    """
    rest = sorted(free)
    for size in sorted((each for count, each in pods for _ in range(min(count, 10_000))), reverse=True):
        place = next((at for at, one in enumerate(rest) if one >= size), None)
        if place is None:
            return False
        left = rest.pop(place) - size
        at = next((at for at, one in enumerate(rest) if one >= left), len(rest))
        rest.insert(at, left)
    return True


def page(user: User, cluster: Cluster) -> dict[str, Any]:
    """Four queries, five where MIG splits some."""
    found = nodes(user, cluster)
    by_model, roomy = models(found), [node for node in found if node.free]
    row = restrict(Waiting.objects.filter(cluster=cluster), user).first()
    pods = restrict(GpuPod.objects.filter(cluster=cluster, node_name=""), user).order_by("namespace", "name")
    unplaced = list(pods[: MOST_PODS + 1])
    free: dict[str, list[list[int]]] = defaultdict(list)
    for model in by_model:
        its = (node for node in found if (node.model, node.profile) == (model.name, model.profile))
        free[model.profile].append([node.free for node in its if not node.is_out])
    whole, instances = [one for one in by_model if not one.profile], [one for one in by_model if one.profile]
    return {
        "cluster": cluster,
        "nodes": sorted(roomy, key=lambda node: (node.is_out, bool(node.profile), -node.free, node.name))[:MOST_NODES],
        "node_count": len(roomy),
        "models": by_model,
        "whole": whole,
        "instances": instances,
        "free": sum(model.free for model in whole),
        "offered": sum(model.offered for model in whole),
        "out": sum(node.free for node in found if node.is_out and not node.profile),
        "instances_free": sum(model.free for model in instances),
        "instances_offered": sum(model.offered for model in instances),
        "largest": max((size.gang for model in by_model if (size := model.whole)), default=0),
        "waiting": row,
        "gangs": [_waiter(gang, free) for gang in row.gangs] if row else [],
        "unplaced": unplaced[:MOST_PODS],
        "more_unplaced": len(unplaced) > MOST_PODS,
    }


def _waiter(gang: dict[str, Any], by_profile: dict[str, list[list[int]]]) -> Waiter:
    wanted, pods, profile = total(gang["pods"]), gang["pods"], gang.get("profile", "")
    free = by_profile.get(profile, [])
    fits = any(can_start(pods, one) for one in free)
    most = max((size_of(max(each for _, each in pods), one).gang for one in free), default=0)
    if profile == SEVERAL:
        verdict = "It wants GPUs of several kinds; what of them is free together is not judged."
    elif fits:
        what = f"instances of {profile}" if profile else "GPUs"
        verdict = f"Enough {what} are free: it waits for quota, priority, or its scheduler."
    elif wanted > (most_free := max(map(sum, free), default=0)):
        what = f"instances of {profile}" if profile else "GPUs"
        verdict = f"It wants {wanted:,} {what}; {most_free:,} of one model are free."
    else:
        verdict = f"Enough are free, but scattered: pods of this size could have {most:,} GPUs at once."
    since = parse_datetime(gang["since"])
    fields = {name: gang[name] for name in ("system", "kind", "namespace", "name", "queue", "pods", "reason")}
    return Waiter(**fields, profile=profile, gpus=wanted, since=since, fits=fits, verdict=verdict)
