"""One node's time, reading by reading, into steps of five minutes: pure, no Django, no clock, no I/O.

A reading speaks for the time since the one before, for three minutes at most. What lies further back is unknown if
Setpoint looked at all, and is not recorded if it did not. `OpenNode.until` says how far a node's time is accounted for:
a reading that is not later counts for nothing, so none is billed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpus.buckets import Bucket, Device
from gpus.samples import Metric, Sample

FINE, COARSE = 300, 3600
"""Seconds of a bucket, and of its roll-up; from midnight UTC, whatever the clocks of people do."""
COVERS_SECONDS = 180.0
"""The most that one reading speaks for: six missed readings, as long as a sample counts for the present."""
LOOKED_SECONDS = 600.0
"""Between two looks, failed ones among them; after more, Setpoint itself was away."""
MOST_WATTS = 10_000.0
COUNTERS = frozenset(
    {
        Metric.ENERGY, Metric.POWER_THROTTLED, Metric.THERMAL_THROTTLED, Metric.PCIE_REPLAYS, Metric.NVLINK_ERRORS,
        Metric.ROWS_REMAPPED_CORRECTABLE, Metric.ROWS_REMAPPED_UNCORRECTABLE, Metric.ECC_CORRECTED_VOLATILE,
        Metric.ECC_UNCORRECTED_VOLATILE, Metric.ECC_CORRECTED_LIFETIME, Metric.ECC_UNCORRECTED_LIFETIME,
    }
)  # fmt: skip
"""Kept as increases; every other metric as a mean."""
STATES = ("effective", "low", "held", "held_unknown", "free", "out", "free_unknown")
"""As in gpus.models.GpuBand. Of a namespace only the first four: what nobody holds belongs to none."""
SEVERAL = "/"
"""No holder's name: it was held by one after another, or by several."""


@dataclass(frozen=True, slots=True)
class View:
    """A node's GPUs by state, in GPUs. A shared one counts in parts for each namespace."""

    bands: Sequence[float]
    """As STATES."""
    namespaces: Mapping[str, Sequence[float]]
    """The first four of STATES."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a node at one time."""

    seen: View
    """With the telemetry of this reading."""
    blind: View
    """By the API server's word alone: for time of which no reading tells."""
    samples: Sequence[Sample] = ()
    """Devices, and boards that MIG splits."""
    paying: Mapping[str, Sequence[tuple[str, float]]] = field(default_factory=dict)
    """By a whole GPU's UUID, which share of its energy is whose: (namespace, 0-1)."""


@dataclass(slots=True)
class Amounts:
    """Of one step of time: GPU-seconds by state, joules, and for how many seconds Setpoint looked."""

    states: list[float]
    joules: float = 0.0
    recorded: float = 0.0

    @classmethod
    def none(cls, length: int = len(STATES)) -> Amounts:
        return cls([0.0] * length)

    def spend(self, gpus: Sequence[float], seconds: float) -> None:
        self.recorded += seconds
        for index, count in enumerate(gpus):
            self.states[index] += count * seconds

    def add(self, other: Amounts) -> None:
        self.joules += other.joules
        self.recorded += other.recorded
        for index, amount in enumerate(other.states):
            self.states[index] += amount

    def packed(self) -> list[float]:
        return [self.joules, self.recorded, *self.states]

    @classmethod
    def unpacked(cls, found: Sequence[float]) -> Amounts:
        return cls(list(found[2:]), found[0], found[1])


@dataclass(slots=True)
class OpenDevice:
    model: str
    holder: str | None = None
    """None until a reading covers some of this step."""
    covered: float = 0.0
    held: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    """Gauges: value times seconds; counters: increase."""
    weights: dict[str, float] = field(default_factory=dict)
    """Gauges: seconds of the readings that had it."""
    last: dict[str, float] = field(default_factory=dict)
    """Counters as of `at`."""
    at: float = 0.0

    def cover(self, sample: Sample, increases: Mapping[str, float], holder: str, seconds: float) -> None:
        """`increases` are those of these seconds."""
        self.holder = holder if self.holder in (None, holder) else SEVERAL
        self.covered += seconds
        if sample.holders:
            self.held += seconds
        for metric, value in sample.values.items():
            if metric not in COUNTERS:
                self.sums[metric] = self.sums.get(metric, 0.0) + value * seconds
                self.weights[metric] = self.weights.get(metric, 0.0) + seconds
        for name, increase in increases.items():
            self.sums[name] = self.sums.get(name, 0.0) + increase

    def bucket(self, start: float) -> Bucket | None:
        """None where no reading covered any of it."""
        if not self.covered:
            return None
        means = {
            Metric(name): total / self.weights[name] if name in self.weights else total
            for name, total in self.sums.items()
        }
        holder = self.holder if self.holder and self.holder != SEVERAL and self.held >= self.covered else ""
        return Bucket(instant(start), min(1.0, self.covered / FINE), min(1.0, self.held / self.covered), means, holder)

    def packed(self) -> list[Any]:
        odd = {name: weight for name, weight in self.weights.items() if weight != self.covered}
        gauges = [name for name in self.sums if name in self.weights]
        counted = {name: value for name, value in self.sums.items() if name not in self.weights}
        sums = {name: self.sums[name] for name in gauges}
        return [self.model, self.holder, self.covered, self.held, sums, odd, counted, self.last, self.at]

    @classmethod
    def unpacked(cls, found: Sequence[Any]) -> OpenDevice:
        model, holder, covered, held, gauges, odd, counted, last, at = found
        weights = dict.fromkeys(gauges, covered) | odd
        return cls(model, holder, covered, held, gauges | counted, weights, last, at)


@dataclass(slots=True)
class OpenNode:
    """A node's step of five minutes that is not over, and its hour."""

    until: float
    """Seconds since 1970; its time is accounted for up to here."""
    fine: Amounts = field(default_factory=Amounts.none)
    hour: Amounts = field(default_factory=Amounts.none)
    namespaces: dict[str, Amounts] = field(default_factory=dict)
    devices: dict[tuple[str, str], OpenDevice] = field(default_factory=dict)

    @property
    def start(self) -> float:
        return self.until // FINE * FINE

    @property
    def has_something(self) -> bool:
        return bool(self.fine.recorded or self.hour.recorded)

    def packed(self) -> list[Any]:
        return [
            self.until,
            self.fine.packed(),
            self.hour.packed(),
            {name: amounts.packed() for name, amounts in self.namespaces.items()},
            [[*key, *device.packed()] for key, device in self.devices.items()],
        ]

    @classmethod
    def unpacked(cls, found: Sequence[Any]) -> OpenNode:
        until, fine, hour, namespaces, devices = found
        return cls(
            until,
            Amounts.unpacked(fine),
            Amounts.unpacked(hour),
            {name: Amounts.unpacked(amounts) for name, amounts in namespaces.items()},
            {(one[0], one[1]): OpenDevice.unpacked(one[2:]) for one in devices},
        )


@dataclass(frozen=True, slots=True)
class ClosedFine:
    node: str
    start: float
    amounts: Amounts
    namespaces: Mapping[str, Amounts]
    devices: Sequence[tuple[Device, Bucket]]


@dataclass(frozen=True, slots=True)
class ClosedHour:
    node: str
    start: float
    amounts: Amounts


Closed = ClosedFine | ClosedHour


def instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def read(node: OpenNode, name: str, look: Look, at: float, reach: float = COVERS_SECONDS) -> Iterator[Closed]:
    """A reading of `at`, which may be late or given twice, and speaks for `reach` seconds at most.

    Yields the steps that are over now, in order.
    """
    if at <= node.until:
        return
    yield from leave(node, name, at - max(LOOKED_SECONDS, reach))
    seen_from = max(node.until, at - reach)
    yield from _pass(node, name, seen_from, lambda seconds: _spend(node, look.blind, seconds))
    rises = {(one.device.uuid, one.device.instance): _rises(node, one, at) for one in look.samples}

    def cover(seconds: float) -> None:
        _spend(node, look.seen, seconds)
        for sample in look.samples:
            _cover(node, sample, rises[sample.device.uuid, sample.device.instance], look.paying, seconds)

    yield from _pass(node, name, at, cover)
    remember(node, look.samples, at)


def lose(node: OpenNode, name: str, blind: View, at: float, reach: float = COVERS_SECONDS) -> Iterator[Closed]:
    """Setpoint looked at `at`, and telemetry told nothing. What the next reading may still speak for is not lost."""
    if at - node.until <= COVERS_SECONDS:
        return
    yield from leave(node, name, at - max(LOOKED_SECONDS, reach))
    yield from _pass(node, name, at, lambda seconds: _spend(node, blind, seconds))


def remember(node: OpenNode, samples: Iterable[Sample], at: float) -> None:
    """What the next reading's counters are held against."""
    for sample in samples:
        device = node.devices.setdefault((sample.device.uuid, sample.device.instance), OpenDevice(sample.model))
        device.model, device.at = sample.model, at
        device.last = {str(name): value for name, value in sample.values.items() if name in COUNTERS}


def leave(node: OpenNode, name: str, until: float) -> Iterator[Closed]:
    """Time in which nobody looked, or the node was not there: accounted as nothing, however long it was."""
    while node.until < until and node.has_something:
        yield from _pass(node, name, min(until, node.start + FINE), lambda _seconds: None)
    node.until = max(node.until, until)


def _pass(node: OpenNode, name: str, until: float, spend: Callable[[float], None]) -> Iterator[Closed]:
    while node.until < until:
        over = node.start + FINE
        stop = min(over, until)
        spend(stop - node.until)
        began, node.until = node.start, stop
        if stop == over:
            yield from _close(node, name, began)


def _close(node: OpenNode, name: str, start: float) -> Iterator[Closed]:
    if node.fine.recorded:
        found = [(key, device, device.bucket(start)) for key, device in node.devices.items()]
        devices = [(Device(*key, name, device.model), bucket) for key, device, bucket in found if bucket]
        yield ClosedFine(name, start, node.fine, node.namespaces, devices)
        node.hour.add(node.fine)
    node.fine, node.namespaces = Amounts.none(), {}
    node.devices = {
        key: OpenDevice(one.model, last=one.last, at=one.at)
        for key, one in node.devices.items()
        if one.covered or start - one.at < COARSE
    }
    if (start + FINE) % COARSE == 0:
        if node.hour.recorded:
            yield ClosedHour(name, start + FINE - COARSE, node.hour)
        node.hour = Amounts.none()


def _spend(node: OpenNode, view: View, seconds: float) -> None:
    node.fine.spend(view.bands, seconds)
    for name, gpus in view.namespaces.items():
        node.namespaces.setdefault(name, Amounts.none(4)).spend(gpus, seconds)


def _rises(node: OpenNode, sample: Sample, at: float) -> Mapping[str, float]:
    """By how much each counter rose a second since it was last read; one that fell has started anew from zero."""
    before = node.devices.get((sample.device.uuid, sample.device.instance))
    if before is None or at <= before.at:
        return {}
    return {
        str(metric): (value - last if value >= last else value) / (at - before.at)
        for metric, value in sample.values.items()
        if metric in COUNTERS and (last := before.last.get(metric)) is not None
    }


def _cover(
    node: OpenNode,
    sample: Sample,
    rises: Mapping[str, float],
    paying: Mapping[str, Sequence[tuple[str, float]]],
    seconds: float,
) -> None:
    key = (sample.device.uuid, sample.device.instance)
    device = node.devices.setdefault(key, OpenDevice(sample.model))
    pods = {(one.namespace, one.pod) for one in sample.holders}
    holder = "/".join(next(iter(pods))) if len(pods) == 1 else SEVERAL
    device.cover(sample, {name: rise * seconds for name, rise in rises.items()}, holder, seconds)
    if sample.device.instance:
        return  # energy is the board's
    watts = rises.get(Metric.ENERGY)
    if watts is None or watts > MOST_WATTS:
        watts = sample.values.get(Metric.POWER, 0.0)
    node.fine.joules += watts * seconds
    for namespace, share in paying.get(sample.device.uuid, ()):
        node.namespaces.setdefault(namespace, Amounts.none(4)).joules += watts * seconds * share


def fold(found: Sequence[Bucket], start: datetime) -> Bucket:
    """Five minutes of one device into its hour. Means weigh as long as each was covered; increases add up."""
    covered = sum(one.covered for one in found)
    means: dict[Metric, float] = {}
    for metric in {name for one in found for name in one.means}:
        having = [one for one in found if metric in one.means]
        if metric in COUNTERS:
            means[metric] = sum(one.means[metric] for one in having)
        else:
            means[metric] = sum(one.means[metric] * one.covered for one in having) / sum(one.covered for one in having)
    holders = {one.holder for one in found}
    held = sum(one.held * one.covered for one in found) / covered
    return Bucket(start, covered * FINE / COARSE, held, means, holders.pop() if len(holders) == 1 else "")
