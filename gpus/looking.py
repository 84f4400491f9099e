"""One cluster's nodes at one reading: what the API server offers and hands out, and what telemetry sees of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast
from uuid import UUID

from clusters.models import GpuPod, Node
from gpus import states, xids
from gpus.accumulating import Look, View
from gpus.models import NodeTally
from gpus.samples import Metric, Reading, Sample
from gpus.states import Tally
from gpus.storing import plain

SLICES = 7
"""Of which MIG makes instances: 3g.40gb is three of them."""


class Offer(NamedTuple):
    """A present node, by the API server's word."""

    pk: int
    name: str
    product: str
    offered: int
    allocated: int
    is_out: bool

    @property
    def model(self) -> str:
        return model_name(self.product)


@dataclass(slots=True)
class Idle:
    """A pod all of whose GPUs on this node do nothing."""

    namespace: str
    pod: str
    model: str
    gpus: int = 0
    share: float = 0.0
    """In whole GPUs."""
    watts: float | None = None
    has_xid: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One node at one reading."""

    offer: Offer | None
    """None: telemetry tells of a node that is not there."""
    look: Look
    counts: Mapping[str, int]
    """By NodeTally.SEEN."""
    idle: Sequence[Idle] = ()


def model_name(product: str) -> str:
    return product.replace("-", " ") or "unknown model"


def models(cluster_id: UUID) -> dict[str, str]:
    """By the node's name, of those that are there."""
    rows = Node.objects.present().filter(cluster=cluster_id).order_by()
    return {name: model_name(product) for name, product in rows.values_list("name", "gpu_product")}


def seen(cluster_id: UUID, reading: Reading | None) -> dict[str, Seen]:
    """By the node's name; those with GPUs by anybody's word. Without a reading, all that telemetry tells is unknown."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    boards: dict[str, list[Sample]] = defaultdict(list)
    for sample in reading.samples if reading else ():
        samples[plain(sample.node, 253)].append(sample)
    for board in reading.boards if reading else ():
        boards[plain(board.node, 253)].append(board)
    wanted = _wanted(cluster_id)
    offers = {one.name: one for one in _offers(cluster_id) if one.offered or one.name in samples}
    names = sorted({*offers, *samples, *boards})
    return {
        name: _of(offers.get(name), samples.get(name, ()), boards.get(name, ()), wanted.get(name, {})) for name in names
    }


def _offers(cluster_id: UUID) -> Iterable[Offer]:
    columns = ("pk", "name", "gpu_product", "gpu_count", "gpu_allocated", "is_ready", "is_cordoned")
    rows = Node.objects.present().filter(cluster=cluster_id).order_by().values_list(*columns)
    for pk, name, product, offered, allocated, is_ready, is_cordoned in rows:
        yield Offer(pk, name, product, offered, allocated, is_cordoned or not is_ready)


def _wanted(cluster_id: UUID) -> Mapping[str, Mapping[str, int]]:
    """GPUs that pods hold by the API server's word: by node, by namespace."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    rows = GpuPod.objects.filter(cluster=cluster_id).exclude(node_name="").order_by()
    for node, namespace, gpus in rows.values_list("node_name", "namespace", "gpus"):
        found[node][namespace] += gpus
    return found


class Stated(NamedTuple):
    """One device at one reading."""

    sample: Sample
    state: str
    pods: Sequence[tuple[str, str]]
    """Namespace and name of those that hold it, sorted."""


def _of(offer: Offer | None, samples: Sequence[Sample], boards: Sequence[Sample], wanted: Mapping[str, int]) -> Seen:
    stated = [Stated(one, state_of(one), _pods(one)) for one in samples]
    counts: Counter[str] = Counter()
    for one, state, _ in stated:
        name = {states.HELD: "held", states.NONE: "held_unknown"}.get(state, state)
        if one.holders or state == states.FREE:
            counts[name] += 1
        if one.xids:
            counts["ill"] += any(found.advice.severity != "ok" for found in xids.seen((xid.code,) for xid in one.xids))
    look = Look(_view(offer, stated, wanted), _view(offer, (), wanted), (*samples, *boards), _paying(stated, boards))
    return Seen(offer, look, {name: counts[name] for name in NodeTally.SEEN}, _idle(stated))


def state_of(sample: Sample) -> str:
    """As `selectors.Gpu` says it of the stored row."""
    if not sample.holders:
        return states.FREE if sample.values else states.NONE
    values = cast("Mapping[str, float]", sample.values)
    return states.of_held(values, is_suspect=sample.suspect, is_instance=bool(sample.device.instance))


def _pods(sample: Sample) -> Sequence[tuple[str, str]]:
    return (
        sorted({(plain(one.namespace, 253), plain(one.pod, 253)) for one in sample.holders}) if sample.holders else ()
    )


_HELD = {states.EFFECTIVE: 0, states.LOW: 1, states.HELD: 2, states.NONE: 3}


def _view(offer: Offer | None, stated: Sequence[Stated], wanted: Mapping[str, int]) -> View:
    if offer is None:
        return View((0.0,) * 7, {})
    tally = Tally.of_node(
        offered=offer.offered,
        allocated=offer.allocated,
        is_out=offer.is_out,
        held=[state for one, state, _ in stated if one.holders],
        free=sum(not one.holders and state == states.FREE for one, state, _ in stated),
    )
    spaces: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for _, state, pods in stated:
        for namespace, _pod in pods:
            spaces[namespace][_HELD[state]] += 1 / len(pods)
    seen_held = sum(bool(one.holders) for one, _, _ in stated)
    lacking = {name: max(0.0, count - sum(spaces.get(name, ()))) for name, count in sorted(wanted.items())}
    unknown, known = tally.allocated - seen_held, sum(lacking.values())
    for name, count in lacking.items():
        if count and unknown:
            spaces[name][3] += unknown * count / known
    if unknown and not known:
        spaces[""][3] += unknown
    bands = (tally.effective, tally.low, tally.held_idle, tally.held_unknown, tally.free, tally.out, tally.free_unknown)
    return View(bands, dict(spaces))


def _paying(stated: Sequence[Stated], boards: Sequence[Sample]) -> Mapping[str, Sequence[tuple[str, float]]]:
    """A board's energy is its instances' holders', each instance an equal part of it."""
    split = {board.device.uuid for board in boards}
    instances = Counter(one.device.uuid for one, _, _ in stated if one.device.uuid in split) if split else Counter()
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for one, _, pods in stated:
        uuid = one.device.uuid
        for namespace, _pod in pods:
            found[uuid].append((namespace, 1 / len(pods) / (instances[uuid] or 1)))
    return found


def part_of_gpu(profile: str) -> float:
    """Of a whole GPU: 3g.40gb is three sevenths, no profile is all of it."""
    slices, g, _ = profile.partition("g.")
    return min(int(slices), SLICES) / SLICES if g and slices.isdecimal() else 1.0


def _idle(stated: Sequence[Stated]) -> Sequence[Idle]:
    found: dict[tuple[str, str], Idle] = {}
    at_work: set[tuple[str, str]] = set()
    for one, state, pods in stated:
        if state != states.HELD:
            at_work.update(pods)
        for pod in pods:
            idle = found.get(pod)
            if idle is None:
                idle = found[pod] = Idle(*pod, plain(one.model, 120))
            idle.gpus += 1
            idle.share += part_of_gpu(one.profile) / len(pods)
            idle.has_xid = idle.has_xid or bool(one.xids)
            if (watts := one.values.get(Metric.POWER)) is not None:
                idle.watts = (idle.watts or 0.0) + watts / len(pods)
    return [idle for pod, idle in sorted(found.items()) if pod not in at_work]
