"""One node's time, reading by reading, into steps of five minutes: pure, no Django, no clock, no I/O.

A reading speaks for the time since the one before, for three minutes at most. What lies further back is unknown if
Setpoint looked at all, and is not recorded if it did not. `OpenNode.until` says how far a node's time is accounted for:
a reading that is not later counts for nothing, so none is billed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isnan, nan
from operator import mul
from typing import Any, NamedTuple

from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric, Sample

FINE, COARSE = 300, 3600
"""Seconds of a bucket, and of its roll-up; from midnight UTC, regardless of daylight saving time."""
COVERS_SECONDS = 180.0
"""The most that one reading speaks for: six missed readings, as long as a sample counts for the present."""
LOOKED_SECONDS = 600.0
"""Between two looks, failed ones among them; after more, Setpoint itself was away."""
MOST_WATTS = 10_000.0
COUNTERS = frozenset(
    {
        Metric.ENERGY, Metric.POWER_THROTTLED, Metric.THERMAL_THROTTLED, Metric.PCIE_REPLAYS,
        Metric.NVLINK_CRC_ERRORS, Metric.NVLINK_REPLAYS, Metric.ROWS_REMAPPED_CORRECTABLE,
        Metric.ROWS_REMAPPED_UNCORRECTABLE, Metric.ECC_CORRECTED_VOLATILE,
        Metric.ECC_UNCORRECTED_VOLATILE, Metric.ECC_CORRECTED_LIFETIME, Metric.ECC_UNCORRECTED_LIFETIME,
    }
)  # fmt: skip
"""Kept as increases; every other metric as a mean."""
METRICS: Mapping[str, Metric] = {str(metric): metric for metric in Metric}
STATES = ("effective", "low", "held", "held_unknown", "free", "out", "free_unknown")
"""As in gpus.models.GpuBand. Of a payer only the first four: what no pod holds belongs to none."""
SEVERAL = "/"
"""No holder's name: it was held by one after another, or by several."""


@dataclass(frozen=True, slots=True)
class NodeBands:
    """A node's GPUs by state, in GPUs. A shared one counts in parts for each payer."""

    bands: Sequence[float]
    """As STATES."""
    payers: Mapping[str, Sequence[float]]
    """By `gpus.storage.payers`; the first four of STATES."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """Node state at one time."""

    seen: NodeBands
    """With the telemetry of this reading."""
    blind: NodeBands
    """By the API server's word alone: for time of which no reading tells."""
    samples: Sequence[Sample] = ()
    """Devices, and boards that MIG splits."""
    paying: Mapping[str, Sequence[tuple[str, float]]] = field(default_factory=dict)
    """By a whole GPU's UUID, which share of its energy is whose: (payer, 0-1)."""


class DeviceReading(NamedTuple):
    """Reading of one device."""

    sample: Sample
    gauges: Mapping[str, float]
    counters: Mapping[str, float]
    rises: Mapping[str, float]
    """Of counters, a second, since they were last read."""
    holder: str
    """Namespace/pod, or SEVERAL."""


@dataclass(slots=True)
class StepTotals:
    """Totals of one step of time: GPU-seconds by state, joules, and for how many seconds Setpoint recorded."""

    states: list[float]
    joules: float = 0.0
    recorded: float = 0.0

    @classmethod
    def none(cls, length: int = len(STATES)) -> StepTotals:
        return cls([0.0] * length)

    def spend(self, gpus: Sequence[float], seconds: float) -> None:
        self.recorded += seconds
        for index, count in enumerate(gpus):
            self.states[index] += count * seconds

    def add(self, other: StepTotals) -> None:
        self.joules += other.joules
        self.recorded += other.recorded
        for index, amount in enumerate(other.states):
            self.states[index] += amount

    def packed(self) -> list[float]:
        return [self.joules, self.recorded, *self.states]

    @classmethod
    def unpacked(cls, packed: Sequence[float]) -> StepTotals:
        return cls(list(packed[2:]), packed[0], packed[1])


@dataclass(slots=True)
class OpenDevice:
    model: str
    holder: str | None = None
    """None until a reading covers some of this step."""
    covered: float = 0.0
    held: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    """Gauges: value times seconds."""
    gaps: dict[str, float] = field(default_factory=dict)
    """Gauges: for how many of the covered seconds the readings lacked them, where there are such."""
    counted: dict[str, float] = field(default_factory=dict)
    """Counters: increase."""
    last: Mapping[str, float] = field(default_factory=dict)
    """Counters as of `at`."""
    at: float = 0.0

    def cover(self, heard: DeviceReading, seconds: float) -> None:
        self.holder = heard.holder if self.holder in (None, heard.holder) else SEVERAL
        if heard.sample.holders:
            self.held += seconds
        sums, before = self.sums, self.covered
        for name, value in heard.gauges.items():
            if name in sums:
                sums[name] += value * seconds
            else:
                sums[name] = value * seconds
                if before:
                    self.gaps[name] = before
        if len(heard.gauges) < len(sums):
            for name in sums.keys() - heard.gauges.keys():
                self.gaps[name] = self.gaps.get(name, 0.0) + seconds
        for name, rise in heard.rises.items():
            self.counted[name] = self.counted.get(name, 0.0) + rise * seconds
        self.covered += seconds

    def bucket(self, start: datetime) -> Bucket | None:
        """None where no reading covered any of it."""
        if not self.covered:
            return None
        gaps, covered = self.gaps, self.covered
        # An open step of another version may have metrics that this one does not know
        totals = ((METRICS.get(name), name, total) for name, total in self.sums.items())
        means = {metric: total / (covered - gaps.get(name, 0.0)) for metric, name, total in totals if metric}
        means |= {METRICS[name]: rise for name, rise in self.counted.items() if name in METRICS}
        holder = self.holder if self.holder and self.holder != SEVERAL and self.held >= covered else ""
        return Bucket(start, min(1.0, covered / FINE), min(1.0, self.held / covered), means, holder)

    def packed(self, gauges: Sequence[str], counters: Sequence[str]) -> list[Any]:
        """Numbers in the order of these names."""
        numbers = [[*map(self.sums.get, gauges)], [*map(self.counted.get, counters)], [*map(self.last.get, counters)]]
        return [self.model, self.holder, self.covered, self.held, self.at, self.gaps, *numbers]

    @classmethod
    def unpacked(cls, packed: Sequence[Any], gauges: Sequence[str], counters: Sequence[str]) -> OpenDevice:
        model, holder, covered, held, at, gaps, sums, counted, last = packed
        by_name = (_named(gauges, sums), gaps, _named(counters, counted), _named(counters, last))
        return cls(model, holder, covered, held, *by_name, at)


def _named(names: Sequence[str], numbers: Sequence[float | None]) -> dict[str, float]:
    return {name: number for name, number in zip(names, numbers, strict=True) if number is not None}


@dataclass(slots=True)
class OpenNode:
    """A node's step of five minutes that is not over, and its hour."""

    until: float
    """Seconds since 1970; its time is accounted for up to here."""
    fine: StepTotals = field(default_factory=StepTotals.none)
    hour: StepTotals = field(default_factory=StepTotals.none)
    payers: dict[str, StepTotals] = field(default_factory=dict)
    devices: dict[tuple[str, str], OpenDevice] = field(default_factory=dict)

    @property
    def start(self) -> float:
        return self.until // FINE * FINE

    @property
    def has_something(self) -> bool:
        return bool(self.fine.recorded or self.hour.recorded)

    def packed(self) -> list[Any]:
        """Return the JSON form. Metric names appear once: they are the same for all devices, or nearly."""
        devices = self.devices.values()
        gauges = sorted({name for device in devices for name in device.sums})
        counters = sorted({name for device in devices for name in (*device.counted, *device.last)})
        return [
            self.until,
            self.fine.packed(),
            self.hour.packed(),
            {name: amounts.packed() for name, amounts in self.payers.items()},
            gauges,
            counters,
            [[*key, *device.packed(gauges, counters)] for key, device in self.devices.items()],
        ]

    @classmethod
    def unpacked(cls, packed: Sequence[Any]) -> OpenNode:
        until, fine, hour, payers, gauges, counters, devices = packed
        return cls(
            until,
            StepTotals.unpacked(fine),
            StepTotals.unpacked(hour),
            {name: StepTotals.unpacked(amounts) for name, amounts in payers.items()},
            {(device[0], device[1]): OpenDevice.unpacked(device[2:], gauges, counters) for device in devices},
        )


@dataclass(frozen=True, slots=True)
class ClosedFine:
    node: str
    start: float
    amounts: StepTotals
    payers: Mapping[str, StepTotals]
    devices: Sequence[tuple[Device, Bucket]]


@dataclass(frozen=True, slots=True)
class ClosedHour:
    node: str
    start: float
    amounts: StepTotals


Closed = ClosedFine | ClosedHour


def instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def advance(node: OpenNode, name: str, look: NodeState, at: float, reach: float = COVERS_SECONDS) -> Iterator[Closed]:
    """A reading of `at`, which may be late or given twice, and speaks for `reach` seconds at most.

    Yields the steps that are over now, in order.
    """
    if at <= node.until:
        return
    yield from leave(node, name, at - max(LOOKED_SECONDS, reach))
    seen_from = max(node.until, at - reach)
    yield from _pass(node, name, seen_from, lambda seconds: _spend(node, look.blind, seconds))
    heard = [_heard(node, sample, at) for sample in look.samples]

    def cover(seconds: float) -> None:
        _spend(node, look.seen, seconds)
        for device_reading in heard:
            _cover(node, device_reading, look.paying, seconds)

    yield from _pass(node, name, at, cover)
    for device_reading in heard:
        _remember(node, device_reading.sample, device_reading.counters, at)


def lose(node: OpenNode, name: str, blind: NodeBands, at: float, reach: float = COVERS_SECONDS) -> Iterator[Closed]:
    """Setpoint looked at `at`, and telemetry told nothing. What the next reading may still speak for is not lost."""
    if at - node.until <= COVERS_SECONDS:
        return
    yield from leave(node, name, at - max(LOOKED_SECONDS, reach))
    yield from _pass(node, name, at, lambda seconds: _spend(node, blind, seconds))


def remember(node: OpenNode, samples: Iterable[Sample], at: float) -> None:
    """Remember the counters, which the next reading's are compared with."""
    for sample in samples:
        _remember(node, sample, {name: value for name, value in sample.values.items() if name in COUNTERS}, at)


def _remember(node: OpenNode, sample: Sample, counters: Mapping[str, float], at: float) -> None:
    device = _device(node, sample)
    device.model, device.at, device.last = sample.model, at, counters


def _device(node: OpenNode, sample: Sample) -> OpenDevice:
    key = (sample.device.uuid, sample.device.instance)
    device = node.devices.get(key)
    if device is None:
        device = node.devices[key] = OpenDevice(sample.model)
    return device


def leave(node: OpenNode, name: str, until: float) -> Iterator[Closed]:
    """Advance over unobserved time, or time without the node: accounted as nothing, however long it was."""
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
        began = instant(start)
        open_buckets = [(key, device, device.bucket(began)) for key, device in node.devices.items()]
        devices = [(Device(*key, name, device.model), bucket) for key, device, bucket in open_buckets if bucket]
        yield ClosedFine(name, start, node.fine, node.payers, devices)
        node.hour.add(node.fine)
    node.fine, node.payers = StepTotals.none(), {}
    node.devices = {
        key: OpenDevice(device.model, last=device.last, at=device.at)
        for key, device in node.devices.items()
        if device.covered or start - device.at < COARSE
    }
    if (start + FINE) % COARSE == 0:
        if node.hour.recorded:
            yield ClosedHour(name, start + FINE - COARSE, node.hour)
        node.hour = StepTotals.none()


def _spend(node: OpenNode, view: NodeBands, seconds: float) -> None:
    node.fine.spend(view.bands, seconds)
    for name, gpus in view.payers.items():
        node.payers.setdefault(name, StepTotals.none(4)).spend(gpus, seconds)


def _heard(node: OpenNode, sample: Sample, at: float) -> DeviceReading:
    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}
    for metric, value in sample.values.items():
        (counters if metric in COUNTERS else gauges)[metric] = value
    pods = {(holder.namespace, holder.pod) for holder in sample.holders}
    holder = "/".join(next(iter(pods))) if len(pods) == 1 else SEVERAL
    return DeviceReading(sample, gauges, counters, _rises(node, sample, counters, at), holder)


def _rises(node: OpenNode, sample: Sample, counters: Mapping[str, float], at: float) -> Mapping[str, float]:
    """Return each counter's rise a second since it was last read; one that fell has restarted from zero."""
    before = node.devices.get((sample.device.uuid, sample.device.instance))
    if before is None or at <= before.at:
        return {}
    passed = at - before.at
    return {
        name: (value - last if value >= last else value) / passed
        for name, value in counters.items()
        if (last := before.last.get(name)) is not None
    }


def _cover(
    node: OpenNode, heard: DeviceReading, paying: Mapping[str, Sequence[tuple[str, float]]], seconds: float
) -> None:
    sample = heard.sample
    _device(node, sample).cover(heard, seconds)
    if sample.device.instance:
        return  # energy is the board's
    watts = heard.rises.get(Metric.ENERGY)
    if watts is None or watts > MOST_WATTS:
        watts = sample.values.get(Metric.POWER, 0.0)
    node.fine.joules += watts * seconds
    for payer, share in paying.get(sample.device.uuid, ()):
        node.payers.setdefault(payer, StepTotals.none(4)).joules += watts * seconds * share


def fold(buckets: Sequence[Bucket], start: datetime) -> Bucket:
    """Five minutes of one device into its hour. Means weigh as long as each was covered; increases add up."""
    covers = [bucket.covered for bucket in buckets]
    covered = sum(covers)
    means: dict[Metric, float] = {}
    for metric in set[Metric]().union(*(bucket.means for bucket in buckets)):
        numbers: list[float] = [bucket.means.get(metric, nan) for bucket in buckets]
        weights = covers
        if any(map(isnan, numbers)):
            weights = [cover for cover, number in zip(covers, numbers, strict=True) if not isnan(number)]
            numbers = [number for number in numbers if not isnan(number)]
        means[metric] = sum(numbers) if metric in COUNTERS else sum(map(mul, numbers, weights)) / sum(weights)
    holders = {bucket.holder for bucket in buckets}
    held = sum(bucket.held * bucket.covered for bucket in buckets) / covered
    return Bucket(start, covered * FINE / COARSE, held, means, holders.pop() if len(holders) == 1 else "")
