"""One cluster's nodes at one reading: what the API server offers and hands out, and what telemetry sees of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast
from uuid import UUID

from clusters.models import GpuPod, Node
from gpus.metrics import mig, states, xids
from gpus.metrics.mig import Split
from gpus.metrics.samples import DeviceKey, Metric, Reading, Sample
from gpus.metrics.states import Tally
from gpus.models import GpuDevice, NodeTally
from gpus.storage import payers
from gpus.storage.accumulator import NodeBands, NodeState
from gpus.storage.devices import plain


class Offer(NamedTuple):
    """A present node, according to the API server."""

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
class NodeSnapshot:
    """One node at one reading."""

    offer: Offer | None
    """None: telemetry tells of a node that is not there."""
    look: NodeState
    counts: Mapping[str, int]
    """By NodeTally.SEEN."""
    idle: Sequence[Idle] = ()


def model_name(product: str) -> str:
    return product.replace("-", " ") or "unknown model"


def models(cluster_id: UUID) -> dict[str, str]:
    """Return the GPU models of present nodes by node name."""
    rows = Node.objects.present().filter(cluster=cluster_id).order_by()
    return {name: model_name(product) for name, product in rows.values_list("name", "gpu_product")}


def snapshots(cluster_id: UUID, reading: Reading | None) -> dict[str, NodeSnapshot]:
    """Return nodes with GPUs, by the API server or by telemetry, under their names.

    Without a reading, all telemetry values are unknown.
    """
    samples: dict[str, list[Sample]] = defaultdict(list)
    boards: dict[str, list[Sample]] = defaultdict(list)
    for sample in reading.samples if reading else ():
        samples[plain(sample.node, 253)].append(sample)
    for board in reading.boards if reading else ():
        boards[plain(board.node, 253)].append(board)
    wanted = _wanted(cluster_id)
    known = _split(samples) if reading else _last_split(cluster_id)
    offers = {offer.name: offer for offer in _offers(cluster_id) if offer.offered or offer.name in samples}
    names = sorted({*offers, *samples, *boards})
    return {
        name: _of(
            offers.get(name),
            samples.get(name, ()),
            boards.get(name, ()),
            wanted.get(name, NO_REQUESTS),
            known.get(name) or mig.of_product(offers[name].product if name in offers else ""),
        )
        for name in names
    }


def _split(samples: Mapping[str, Iterable[Sample]]) -> Mapping[str, Split]:
    return {
        name: mig.of_node((sample.device, sample.profile, sample.model) for sample in samples_of_node)
        for name, samples_of_node in samples.items()
    }


def _last_split(cluster_id: UUID) -> Mapping[str, Split]:
    """Return how MIG split the nodes when they were last read, for use without a reading."""
    by_node: dict[str, list[tuple[DeviceKey, str, str]]] = defaultdict(list)
    rows = GpuDevice.objects.holdable().seen().filter(cluster=cluster_id).exclude(instance="").order_by()
    for name, uuid, *rest in rows.values_list("node_name", "uuid", "instance", "profile", "model"):
        by_node[name].append((DeviceKey(uuid, rest[0]), rest[1], rest[2]))
    return {name: mig.of_node(devices) for name, devices in by_node.items()}


def _offers(cluster_id: UUID) -> Iterable[Offer]:
    columns = ("pk", "name", "gpu_product", "gpu_count", "gpu_allocated", "is_ready", "is_cordoned")
    rows = Node.objects.present().filter(cluster=cluster_id).order_by().values_list(*columns)
    for pk, name, product, offered, allocated, is_ready, is_cordoned in rows:
        yield Offer(pk, name, product, offered, allocated, is_cordoned or not is_ready)


@dataclass(slots=True)
class PodRequests:
    """GPUs, or shares of them, that the pods of one node hold according to the API server."""

    counts: Counter[str] = field(default_factory=Counter)
    """By payer."""
    payers: dict[tuple[str, str], str] = field(default_factory=dict)
    """By namespace and name of a pod."""

    def payer(self, pod: tuple[str, str]) -> str:
        return self.payers.get(pod) or payers.key(pod[0])

    @property
    def by_namespace(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for payer, count in self.counts.items():
            totals[payers.namespace(payer)] += count
        return totals


NO_REQUESTS = PodRequests()


def _wanted(cluster_id: UUID) -> Mapping[str, PodRequests]:
    """Return what pods hold by node, according to the API server."""
    by_node: dict[str, PodRequests] = defaultdict(PodRequests)
    rows = GpuPod.objects.filter(cluster=cluster_id).exclude(node_name="").order_by()
    columns = ("node_name", "namespace", "name", "owner_kind", "owner_name", "job_key", "gpus")
    for node, namespace, name, kind, owner, job, gpus in rows.values_list(*columns):
        payer = payers.key(namespace, kind, owner, job)
        by_node[node].counts[payer] += gpus
        by_node[node].payers[namespace, name] = payer
    return by_node


class Stated(NamedTuple):
    """One device at one reading."""

    sample: Sample
    state: str
    pods: Sequence[tuple[str, str]]
    """Namespace and name of those that hold it, sorted."""


def _of(
    offer: Offer | None, samples: Sequence[Sample], boards: Sequence[Sample], wanted: PodRequests, split: Split
) -> NodeSnapshot:
    stated = _stated(samples)
    counts: Counter[str] = Counter()
    for sample, state, _ in stated:
        name = {states.HELD: "held", states.NONE: "held_unknown"}.get(state, state)
        if sample.holders or state == states.FREE:
            counts[name] += 1
        if sample.xids:
            counts["ill"] += any(
                xid.advice.severity != "ok" for xid in xids.reported((xid.code,) for xid in sample.xids)
            )
    seen, blind = _view(offer, stated, wanted, split), _view(offer, (), wanted, split)
    look = NodeState(seen, blind, (*samples, *boards), _paying(stated, wanted, split))
    return NodeSnapshot(offer, look, {name: counts[name] for name in NodeTally.SEEN}, _idle(stated, split))


def _stated(samples: Iterable[Sample]) -> list[Stated]:
    return [Stated(sample, state_of(sample), _pods(sample)) for sample in samples]


def state_of(sample: Sample) -> str:
    """Return the state, the same as `selectors.Gpu` returns for the stored row."""
    if not sample.holders:
        return states.FREE if sample.values else states.NONE
    values = cast("Mapping[str, float]", sample.values)
    return states.of_held(values, is_suspect=sample.suspect, is_instance=bool(sample.device.instance))


def _pods(sample: Sample) -> Sequence[tuple[str, str]]:
    return (
        sorted({(plain(holder.namespace, 253), plain(holder.pod, 253)) for holder in sample.holders})
        if sample.holders
        else ()
    )


_HELD = {states.EFFECTIVE: 0, states.LOW: 1, states.HELD: 2, states.NONE: 3}


def _view(offer: Offer | None, stated: Sequence[Stated], wanted: PodRequests, split: Split) -> NodeBands:
    """Return the view in whole GPUs: an instance is its part of one."""
    if offer is None:
        return NodeBands((0.0,) * 7, {})
    tally = Tally.of_node(
        offered=offer.offered,
        allocated=offer.allocated,
        is_out=offer.is_out,
        held=[state for sample, state, _ in stated if sample.holders],
        free=sum(not sample.holders and state == states.FREE for sample, state, _ in stated),
    )
    held: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    known: dict[str, float] = defaultdict(float)
    for sample, state, pods in stated:
        for pod in pods:
            held[wanted.payer(pod)][_HELD[state]] += split.of(sample) / len(pods)
            known[wanted.payer(pod)] += 1 / len(pods)
    bands, unknown = _bands(tally, stated, split, is_out=offer.is_out)
    if unknown:
        for payer, part in _lacking(offer, wanted, known).items():
            held[payer][3] += unknown * part
    return NodeBands(bands, dict(held))


def _lacking(offer: Offer, wanted: PodRequests, known: Mapping[str, float]) -> Mapping[str, float]:
    """Return whose the held GPUs are that telemetry does not know: shares by payer, which sum to 1.

    Judged by namespace first, for telemetry may see a pod that the API server has no row of; then by payer within it.
    """
    # Pods hold shares of shared devices: together they are the devices that they take.
    each = min(1.0, offer.allocated / total) if (total := sum(wanted.counts.values())) else 1.0
    seen: dict[str, float] = defaultdict(float)
    for payer, count in known.items():
        seen[payers.namespace(payer)] += count
    spaces = {name: max(0.0, count * each - seen[name]) for name, count in sorted(wanted.by_namespace.items())}
    if not (together := sum(spaces.values())):
        return {payers.key(""): 1.0}
    parts: dict[str, dict[str, float]] = defaultdict(dict)
    for payer, count in sorted(wanted.counts.items()):
        parts[payers.namespace(payer)][payer] = max(0.0, count * each - known.get(payer, 0.0))
    shares = {}
    for name, lacking in spaces.items():
        within = sum(parts[name].values())
        for payer, part in parts[name].items():
            if part:
                shares[payer] = lacking / together * part / within
    return shares


def _bands(tally: Tally, stated: Sequence[Stated], split: Split, *, is_out: bool) -> tuple[tuple[float, ...], float]:
    """Whole GPUs by state, and how much of them pods hold according to the API server alone.

    The tally counts devices: a node that MIG splits has each of them weighed.
    """
    seen_held = sum(bool(sample.holders) for sample, _, _ in stated)
    unseen_held, rest = tally.allocated - seen_held, tally.total - tally.allocated
    if split is mig.WHOLE:
        counts = (tally.effective, tally.low, tally.held_idle, tally.held_unknown, tally.free, tally.out)
        return (*counts, tally.free_unknown), unseen_held
    held = dict.fromkeys(_HELD, 0.0)
    free: list[float] = []
    silent: list[float] = []
    for sample, state, _ in stated:
        if sample.holders:
            held[state] += split.of(sample)
        else:
            (free if state == states.FREE else silent).append(split.of(sample))
    others = max(tally.total - seen_held - len(free), len(silent))  # that telemetry says nothing of
    each = (sum(silent) + split.mean * (others - len(silent))) / others if others else 0.0
    blind = max(0, rest - len(free))  # as in Tally.of_node: pods are on those that telemetry says nothing of first
    taken = len(free) - (rest - blind)
    of_free = sum(free) / len(free) if free else 0.0
    unknown = of_free * taken + each * (unseen_held - taken)
    at_hand, unseen = of_free * (len(free) - taken) + split.left, each * blind
    idle = (0.0, at_hand + unseen, 0.0) if is_out else (at_hand, 0.0, unseen)
    at_work = (held[states.EFFECTIVE], held[states.LOW], held[states.HELD], held[states.NONE] + unknown)
    return (*at_work, *idle), unknown


def _paying(stated: Sequence[Stated], wanted: PodRequests, split: Split) -> Mapping[str, Sequence[tuple[str, float]]]:
    """A board's energy is its instances' holders', each as much as its instance is of the board."""
    by_board: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for sample, _, pods in stated:
        for pod in pods:
            by_board[sample.device.uuid].append((wanted.payer(pod), split.of(sample) / len(pods)))
    return by_board


def _idle(stated: Sequence[Stated], split: Split) -> Sequence[Idle]:
    by_pod: dict[tuple[str, str], Idle] = {}
    at_work: set[tuple[str, str]] = set()
    for sample, state, pods in stated:
        if state != states.HELD:
            at_work.update(pods)
        for pod in pods:
            idle = by_pod.get(pod)
            if idle is None:
                idle = by_pod[pod] = Idle(*pod, plain(sample.model, 120))
            idle.gpus += 1
            idle.share += split.of(sample) / len(pods)
            idle.has_xid = idle.has_xid or bool(sample.xids)
            if (watts := sample.values.get(Metric.POWER)) is not None:
                idle.watts = (idle.watts or 0.0) + watts / len(pods)
    return [idle for pod, idle in sorted(by_pod.items()) if pod not in at_work]
