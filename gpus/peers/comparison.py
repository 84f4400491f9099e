"""Comparison of nodes with their peers at the same work: pure, hour by hour, no Django, no clock.

A different job is not a slow node, and neither is a different role in it or a replica with less load. So a node is
compared only with nodes whose GPUs are of the same model and did the same work in the same hour: the same role of the
same job with as many GPUs a pod, or, where no job is on enough nodes, the same role in the same namespace. docs/gpu.md
has every rule as words, and what these figures cannot tell apart.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from gpus.effects import windows
from gpus.metrics import boards, states
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric

FEWEST_HOURS = 3
"""At work and compared; fewer are one job's start and end. A judgment."""
FEWEST_PEERS = 4
"""Besides the node itself. With fewer, half of them is one."""
COVERED_FROM = 0.5
"""Share of the hour that readings must cover."""
STEADY_FROM = 0.8
"""Busy for as much of the hour: below, a GPU lowers its clock and its power by itself."""
LEAST = 0.05
"""Slower by less is not worth an investigation. A judgment."""
SPREADS = 4.0
"""How many robust standard deviations below the usual is outside. docs/gpu.md has the false alarms by simulation."""
NORMAL = 1.4826
"""Median absolute deviation to standard deviation, where values are normal."""
SMALL = {5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
"""By how much the deviation of so few values is too small (Croux, Rousseeuw, COMPSTAT 1992); of more, n ÷ (n - 0.8)."""
JOB, REPLICAS, NAMESPACE = "job", "replicas", "namespace"


@dataclass(frozen=True, slots=True)
class Signal:
    name: str
    """As in gpus.effects.measures, which has its title and unit."""
    decides: frozenset[str]
    """Among which nodes a lower figure means slower: JOB, REPLICAS, NAMESPACE. Others are shown beside them."""
    hint: str
    """What a lower figure points to."""
    least: float = LEAST
    """Slower by less is not said."""


SIGNALS = (
    Signal("ofu", frozenset({JOB}), "does less arithmetic a second"),
    Signal("tensor", frozenset({JOB}), "does less arithmetic a second"),
    Signal("busy", frozenset({JOB}), "its GPUs wait: for the host, data or network, or for requests", 2 * LEAST),
    Signal("sm_clock", frozenset({JOB, REPLICAS, NAMESPACE}), "throttled (power, thermal or limit)"),
    Signal("watts", frozenset(), "draws less power"),
)
"""Tensor only where OFU cannot be told: the board's highest clock is not known. Busy needs twice as much: where most
nodes have 100 %, they lie closer together than each of them differs from hour to hour."""
BY_NAME = {signal.name: signal for signal in SIGNALS}
OF_LOADS = frozenset({"ofu", "tensor", "busy"})
"""Lower where a GPU has less to do, too."""
_WIDTH = 5
"""Numbers of a look: node's figure, the usual, gap, bound, nodes in the group."""


class Work(NamedTuple):
    """Work that the pods of one group have in common."""

    key: str
    """Of the job; tells it from every other of its cluster."""
    name: str
    """namespace/name"""
    role: str = ""
    gpus: int = 0
    """That each pod holds; 0: not known."""
    is_in_step: bool = False
    """Its pods share the work evenly; False: each has the load that it is given."""


def _without_stage(role: str) -> str:
    """Return the role alone: a stage is of one job, and one that no other pod has would hide a node from all others."""
    return "" if role.startswith("stage ") else role.partition(", stage ")[0]


def by_name(holder: str) -> Work:
    """Return the work of a pod of which nothing but its name is known: its load may be anything."""
    name = windows.job(holder)
    return Work(name, name)


def figures(bucket: Bucket, model: str) -> dict[str, float] | None:
    """Return one GPU's figures for one hour; None unless it worked for one pod throughout."""
    means = bucket.means
    busy = means.get(Metric.BUSY, means.get(Metric.ENGINE))
    if not bucket.holder or bucket.covered < COVERED_FROM or busy is None or busy < states.IDLE_BELOW:
        return None
    out = {"busy": busy}
    if (ofu := boards.ofu(means, model)) is not None:
        out["ofu"] = ofu
    elif Metric.TENSOR in means:
        out["tensor"] = means[Metric.TENSOR]
    if busy >= STEADY_FROM:
        if Metric.SM_CLOCK in means:
            out["sm_clock"] = means[Metric.SM_CLOCK] / boards.MHZ
        if Metric.POWER in means:
            out["watts"] = means[Metric.POWER]
    return out


@dataclass(slots=True)
class PeerHours:
    """Comparison data of one node, among peers with one thing in common."""

    hours: set[datetime] = field(default_factory=set)
    """Compared."""
    work: Counter[Work] = field(default_factory=Counter)
    """By compared hours."""
    looks: dict[str, tuple[list[datetime], array[float]]] = field(default_factory=dict)
    """By signal: hours, and `_WIDTH` numbers for each."""

    def add(self, hour: datetime, name: str, numbers: Sequence[float]) -> None:
        hours, kept = self.looks.setdefault(name, ([], array("d")))
        hours.append(hour)
        kept.extend(numbers)


@dataclass(frozen=True, slots=True)
class SignalSummary:
    """One signal over all compared hours of a node; each number but `hours` is a median over them."""

    signal: str
    value: float
    usual: float
    gap: float
    """-0.12: 12 % below the usual."""
    bound: float
    """Slower is what is below it."""
    hours: int
    peers: int
    since: datetime | None
    """The first hour of this day in which it was below; None where it is not slower."""

    @property
    def is_below(self) -> bool:
        return self.gap < self.bound

    def to_json(self) -> dict[str, Any]:
        numbers = {name: _short(getattr(self, name)) for name in ("value", "usual", "gap", "bound")}
        return {"signal": self.signal, **numbers, "hours": self.hours, "peers": self.peers}


@dataclass(frozen=True, slots=True)
class PeerComparison:
    """Pace of one node against its peers."""

    is_compared: bool
    is_slower: bool = False
    in_common: str = ""
    """JOB, REPLICAS or NAMESPACE; of one that is not compared, among which it would be."""
    work: str = ""
    role: str = ""
    pod_gpus: int = 0
    hours: int = 0
    """Compared; of one that is not compared, at work."""
    peers: int = 0
    """Of one that is not compared: the most that did the same in the same hour."""
    model: str = ""
    worst: SignalSummary | None = None
    """Of a slower one: the signal by which it is so the most."""
    readings: tuple[SignalSummary, ...] = ()


class Day:
    """Hours are given one by one, so that memory holds one hour of every device and not all of them."""

    def __init__(self, work: Callable[[str, str, datetime], Work] | None = None) -> None:
        """`work` tells that of a pod by its `namespace/name`, its node and the hour; without it names alone do."""
        self.work = work or (lambda holder, _node, _hour: by_name(holder))
        self.at_work: dict[str, set[datetime]] = defaultdict(set)
        self.models: dict[str, str] = {}
        self.seen: dict[str, dict[str, PeerHours]] = {
            name: defaultdict(PeerHours) for name in (JOB, REPLICAS, NAMESPACE)
        }
        self.groups: dict[str, dict[Work, _Size]] = defaultdict(lambda: defaultdict(_Size))
        """By node: those of jobs that it was in, compared or too small."""

    def add(self, hour: datetime, readings: Iterable[tuple[Device, Bucket]]) -> None:
        groups: dict[tuple[str, str, Work], dict[str, list[tuple[float, dict[str, float]]]]]
        groups = defaultdict(lambda: defaultdict(list))
        for device, bucket in readings:
            if device.instance or (own := figures(bucket, device.model)) is None:
                continue  # what an instance gets depends on its neighbors
            node = device.node_name
            self.at_work[node].add(hour)
            self.models[node] = device.model
            work, namespace = self.work(bucket.holder, node, hour), bucket.holder.partition("/")[0]
            others = Work(namespace, namespace, _without_stage(work.role), work.gpus)
            for in_common, shared in ((JOB if work.is_in_step else REPLICAS, work), (NAMESPACE, others)):
                groups[in_common, device.model, shared][node].append((bucket.covered, own))
        for (in_common, _, work), nodes in groups.items():
            self._compare(hour, in_common, work, {node: _mean(gpus) for node, gpus in nodes.items()})
            for node in nodes if in_common != NAMESPACE else ():
                self.groups[node][work].add(len(nodes))

    def _compare(self, hour: datetime, in_common: str, work: Work, nodes: Mapping[str, Mapping[str, float]]) -> None:
        for signal in SIGNALS:
            values = {node: by_signal[signal.name] for node, by_signal in nodes.items() if signal.name in by_signal}
            if len(values) <= FEWEST_PEERS or (usual := median(values.values())) <= 0:
                continue
            bound = _bound(usual, values.values(), signal.least)
            for node, value in values.items():
                seen = self.seen[in_common][node]
                seen.add(hour, signal.name, (value, usual, value / usual - 1, bound, len(values)))
                if in_common in signal.decides:
                    seen.hours.add(hour)
                    seen.work[work] += 1

    def pace(self, node: str) -> PeerComparison:
        model = self.models.get(node, "")
        for in_common in (JOB, REPLICAS, NAMESPACE):
            seen = self.seen[in_common].get(node)
            if seen is not None and len(seen.hours) >= FEWEST_HOURS:
                return _judged(in_common, model, seen)
        few = PeerComparison(is_compared=False, hours=len(self.at_work.get(node, ())), model=model)
        groups = self.groups.get(node)
        if not groups:
            return few
        work, size = max(groups.items(), key=lambda group: (group[1].hours, group[0]))
        return replace(
            few, in_common=JOB if work.is_in_step else REPLICAS, work=work.name, role=work.role, pod_gpus=work.gpus,
            peers=size.most - 1,
        )  # fmt: skip


@dataclass(slots=True)
class _Size:
    hours: int = 0
    most: int = 0
    """Nodes in one hour."""

    def add(self, nodes: int) -> None:
        self.hours += 1
        self.most = max(self.most, nodes)


def _mean(gpus: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Return the mean figures of a node's GPUs at the same work, each weighted by the time that readings cover."""
    out = {}
    for name in {name for _, of_gpu in gpus for name in of_gpu}:
        having = [(weight, of_gpu[name]) for weight, of_gpu in gpus if name in of_gpu]
        out[name] = sum(weight * value for weight, value in having) / sum(weight for weight, _ in having)
    return out


def _bound(usual: float, values: Iterable[float], least: float) -> float:
    """Return how far below the usual, as a negative share of it, a node must be to exceed the normal spread."""
    away = [abs(value - usual) for value in values]
    n = len(away)
    spread = NORMAL * SMALL.get(n, n / (n - 0.8)) * median(away)
    return -max(least, SPREADS * spread / usual)


def _judged(in_common: str, model: str, seen: PeerHours) -> PeerComparison:
    readings = tuple(_readings(in_common, seen))
    decisive = [reading for reading in readings if in_common in BY_NAME[reading.signal].decides]
    power = next((reading for reading in readings if reading.signal == "watts"), None)
    below = [reading for reading in decisive if reading.is_below]
    if in_common != JOB and (power is None or power.gap > LEAST):
        below = []  # a heavier job runs into the power limit and has lower clocks for it
    worst = min(below, key=lambda reading: reading.gap, default=None)
    work = seen.work.most_common(1)[0][0]
    return PeerComparison(
        is_compared=True, is_slower=worst is not None, in_common=in_common, work=work.name, role=work.role,
        pod_gpus=work.gpus, hours=len(seen.hours), peers=min(reading.peers for reading in decisive), model=model,
        worst=worst, readings=readings,
    )  # fmt: skip


def _readings(in_common: str, seen: PeerHours) -> Iterator[SignalSummary]:
    for signal in SIGNALS:
        hours, numbers = seen.looks.get(signal.name, ([], array("d")))
        if len(set(hours)) < FEWEST_HOURS:
            continue
        value, usual, gap, bound, nodes = (median(numbers[place::_WIDTH]) for place in range(_WIDTH))
        below = [
            at for at, number, low in zip(hours, numbers[2::_WIDTH], numbers[3::_WIDTH], strict=True) if number < low
        ]
        is_below = gap < bound and in_common in signal.decides
        since = min(below) if is_below and below else None
        yield SignalSummary(signal.name, value, usual, gap, bound, len(set(hours)), int(nodes) - 1, since)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
