"""Figures of one host, from its readings: what is not exported, or was not answered, has no value and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpus.reports.hosts.kubelets import Evictions
from gpus.reports.hosts.queries import NVLINK_BOTH_SCALE
from gpus.reports.hosts.samples import HostReading, Parts, Steps

NOT_EXPORTED = "not exported"
SHARE, BYTES, THROUGHPUT, SECONDS = "share", "bytes", "bytes/s", "seconds"
ACTIVE = 4
"""Of node_infiniband_state_id; 1 is down, 2 initializing, 3 armed, 5 active and deferred."""
STATES = {0: "unchanged", 1: "down", 2: "initializing", 3: "armed", ACTIVE: "active", 5: "active, deferred"}
Combine = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the host's page."""

    name: str
    title: str
    unit: str
    values: Steps
    """By step, the oldest first; None: unknown."""
    mean: float | None
    """Over the known steps; of a latency over all operations, of the slowest device."""
    lack: str = ""
    """Why there is no value."""

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def most(self) -> float | None:
        return max(self.known, default=None)

    @property
    def least(self) -> float | None:
        return min(self.known, default=None)


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device; latencies are the time of an operation from its queue to its end."""

    name: str
    read_latency: float | None
    """Seconds, over all reads; None: nothing was read, or it is not exported."""
    write_latency: float | None
    worst_read: float | None
    """Of any step."""
    worst_write: float | None
    reads: float | None
    """Completed in a second."""
    writes: float | None
    bytes_read: float | None
    bytes_written: float | None
    busy: float | None
    """Share of the time with an operation in progress."""


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    received: float | None
    """Bytes in a second."""
    sent: float | None
    errors: float | None
    """Received and sent, in the whole time."""
    drops: float | None


@dataclass(frozen=True, slots=True)
class Port:
    """A port of InfiniBand, or of RoCE where its driver counts there."""

    device: str
    port: str
    received: float | None
    sent: float | None
    rate: float | None
    """Bytes in a second that the link can carry."""
    state: int | None
    errors: float | None
    """Received with an error, and symbol errors, in the whole time."""
    discards: float | None
    downs: float | None
    """Link downs."""

    @property
    def name(self) -> str:
        return f"{self.device}/{self.port}"

    @property
    def state_word(self) -> str:
        return "" if self.state is None else STATES.get(self.state, str(self.state))


class HostFigures:
    """Figures, disks and ports of one reading."""

    def __init__(self, reading: HostReading) -> None:
        self._reading, self.span = reading, reading.span

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Figures by name, in the order in which they are shown."""
        return {figure.name: figure for figure in self._figures()}

    def _figures(self) -> Iterator[Figure]:
        yield from self._cpu()
        yield from self._memory()
        for name, title in (
            ("pressure_cpu", "CPU pressure"), ("pressure_io", "I/O pressure"),
            ("pressure_io_full", "I/O pressure, all tasks"), ("pressure_memory", "Memory pressure"),
            ("pressure_memory_full", "Memory pressure, all tasks"),
        ):  # fmt: skip
            yield self._plain(name, title, SHARE, (name,), max)
        yield self._latency("disk_read_latency", "Disk read latency", "read_seconds", "reads")
        yield self._latency("disk_write_latency", "Disk write latency", "write_seconds", "writes")
        for name, title, sources in (
            ("disk_read", "Disk read", ("bytes_read",)), ("disk_written", "Disk written", ("bytes_written",)),
            ("network_received", "Network received", ("net_received",)),
            ("network_sent", "Network sent", ("net_sent",)),
            ("rdma_received", "RDMA received", ("rdma_received",)), ("rdma_sent", "RDMA sent", ("rdma_sent",)),
            ("pcie_received", "PCIe to GPUs", ("pcie_received",)), ("pcie_sent", "PCIe from GPUs", ("pcie_sent",)),
        ):  # fmt: skip
            yield self._plain(name, title, THROUGHPUT, sources, sum)
        yield self._nvlink()

    def _cpu(self) -> Iterator[Figure]:
        modes = self._parts("cpu")
        total = _combined(modes.values(), sum, self.span.steps)
        waiting = modes.get(("iowait",), [None] * self.span.steps)
        idle = modes.get(("idle",), [None] * self.span.steps)
        busy = [
            None if whole is None or free is None else whole - free - (io or 0.0)
            for whole, free, io in zip(total, idle, waiting, strict=True)
        ]
        yield self._figure("cpu_busy", "CPU busy", SHARE, _ratio(busy, total), "cpu")
        yield self._figure("cpu_iowait", "CPU idle, waits for I/O", SHARE, _ratio(waiting, total), "cpu")

    def _memory(self) -> Iterator[Figure]:
        available, total, cache = (
            _combined(self._parts(name).values(), max, self.span.steps)
            for name in ("memory_available", "memory_total", "page_cache")
        )
        share = _ratio(available, total)
        yield self._figure("memory_available", "Memory available", SHARE, share, "memory_available", "memory_total")
        yield self._figure("page_cache", "Page cache", BYTES, cache, "page_cache")

    def _nvlink(self) -> Figure:
        directions = ("nvlink_sent", "nvlink_received")
        figure = self._plain("nvlink", "NVLink, both directions", THROUGHPUT, directions, sum)
        if figure.known or not self._parts("nvlink_both"):
            return figure
        both = _combined(self._parts("nvlink_both").values(), sum, self.span.steps)
        scaled = [None if value is None else value * NVLINK_BOTH_SCALE for value in both]
        return self._figure(figure.name, figure.title, THROUGHPUT, scaled, "nvlink_both")

    def _plain(self, name: str, title: str, unit: str, sources: Sequence[str], combine: Combine) -> Figure:
        rows = [steps for source in sources for steps in self._parts(source).values()]
        return self._figure(name, title, unit, _combined(rows, combine, self.span.steps), *sources)

    def _latency(self, name: str, title: str, seconds: str, operations: str) -> Figure:
        rows = [_ratio(*pair) for pair in self._pairs(seconds, operations).values()]
        means = [mean for mean in (_weighted(*pair) for pair in self._pairs(seconds, operations).values()) if mean]
        values = _combined(rows, max, self.span.steps)
        lack = self._lack(values, seconds, operations)
        if lack == NOT_EXPORTED and self._parts(seconds) and self._parts(operations):
            lack = "no operation in this time"
        return Figure(name, title, SECONDS, values, max(means, default=None), lack)

    def _figure(self, name: str, title: str, unit: str, values: Steps, *sources: str) -> Figure:
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if known else None
        return Figure(name, title, unit, values, mean, self._lack(values, *sources))

    def _lack(self, values: Steps, *sources: str) -> str:
        if any(value is not None for value in values):
            return ""
        return next((self._reading.lacks[name] for name in sources if name in self._reading.lacks), NOT_EXPORTED)

    def _parts(self, name: str) -> Parts:
        return self._reading.parts.get(name, {})

    def _pairs(self, numerators: str, denominators: str) -> dict[tuple[str, ...], tuple[Steps, Steps]]:
        counts = self._parts(denominators)
        return {part: (steps, counts[part]) for part, steps in self._parts(numerators).items() if part in counts}

    # ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────
    @cached_property
    def disks(self) -> list[Disk]:
        reads, writes = self._pairs("read_seconds", "reads"), self._pairs("write_seconds", "writes")
        return [
            Disk(
                part[0],
                _weighted(*reads[part]) if part in reads else None,
                _weighted(*writes[part]) if part in writes else None,
                _most(_ratio(*reads[part])) if part in reads else None,
                _most(_ratio(*writes[part])) if part in writes else None,
                *(self._mean(name, part) for name in ("reads", "writes", "bytes_read", "bytes_written", "disk_busy")),
            )
            for part in self._devices("reads", "writes", "bytes_read", "bytes_written", "disk_busy")
        ]

    @cached_property
    def interfaces(self) -> list[Interface]:
        """Those with any traffic, errors or drops: a server has ports that nothing is plugged into."""
        rows = [
            Interface(
                part[0],
                self._mean("net_received", part),
                self._mean("net_sent", part),
                self._total(("net_errors_received", "net_errors_sent"), part),
                self._total(("net_drops_received", "net_drops_sent"), part),
            )
            for part in self._devices("net_received", "net_sent")
        ]
        return [row for row in rows if row.received or row.sent or row.errors or row.drops]

    @cached_property
    def ports(self) -> list[Port]:
        return [
            Port(
                part[0],
                part[1],
                self._mean("rdma_received", part),
                self._mean("rdma_sent", part),
                self._last("rdma_rate", part),
                None if (state := self._last("rdma_state", part)) is None else int(state),
                self._total(("rdma_errors", "rdma_symbol_errors"), part),
                self._total(("rdma_discards",), part),
                self._total(("rdma_downs",), part),
            )
            for part in self._devices("rdma_received", "rdma_sent", "rdma_state")
        ]

    @cached_property
    def oom_kills(self) -> float | None:
        """Processes that the kernel killed for memory in the whole time, of any pod or of none."""
        return self._total(("oom_kills",), ())

    @property
    def evictions(self) -> Evictions | None:
        """Pods that the kubelet evicted in the whole time, by signal; None: its counters are not scraped."""
        return self._reading.evictions

    @property
    def evicted(self) -> int | None:
        return None if self.evictions is None else sum(self.evictions.values())

    def lack(self, *names: str) -> str:
        """Return why there are no devices of these queries."""
        return next((self._reading.lacks[name] for name in names if name in self._reading.lacks), NOT_EXPORTED)

    def _devices(self, *names: str) -> list[tuple[str, ...]]:
        return sorted({part for name in names for part in self._parts(name)})

    def _mean(self, name: str, part: tuple[str, ...]) -> float | None:
        known = [value for value in self._parts(name).get(part, ()) if value is not None]
        return sum(known) / len(known) if known else None

    def _last(self, name: str, part: tuple[str, ...]) -> float | None:
        return next((value for value in reversed(self._parts(name).get(part, [])) if value is not None), None)

    def _total(self, names: Iterable[str], part: tuple[str, ...]) -> float | None:
        rates = [value for name in names for value in self._parts(name).get(part, ()) if value is not None]
        return round(sum(rates) * self.span.step, 3) if rates else None


def _combined(rows: Iterable[Steps], combine: Combine, steps: int) -> Steps:
    columns: list[list[float]] = [[] for _ in range(steps)]
    for row in rows:
        for place, value in enumerate(row):
            if value is not None:
                columns[place].append(value)
    return [combine(column) if column else None for column in columns]


def _ratio(numerators: Steps, denominators: Steps) -> Steps:
    return [
        None if above is None or not below else above / below
        for above, below in zip(numerators, denominators, strict=True)
    ]


def _weighted(numerators: Steps, denominators: Steps) -> float | None:
    """Return the ratio of the sums: of latencies, the mean over operations and not over steps."""
    pairs = [
        (above, below)
        for above, below in zip(numerators, denominators, strict=True)
        if above is not None and below is not None
    ]
    operations = sum(below for _, below in pairs)
    return sum(above for above, _ in pairs) / operations if operations else None


def _most(values: Steps) -> float | None:
    return max((value for value in values if value is not None), default=None)
