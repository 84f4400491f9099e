"""Findings about what limits a node, where its figures show it. docs/gpu.md has the thresholds and their origins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpus.reports.hosts.figures import ACTIVE, HostFigures, Port
from gpus.reports.hosts.samples import Steps

PRESSURE = {"pressure_io": 0.10, "pressure_memory": 0.10, "pressure_cpu": 0.20}
"""Shares of the time in which some task waited: Setpoint's own."""
LEAST_STEPS = 0.1
"""Share of the steps that must be above it: Setpoint's own."""
GPUS_BUSY = 0.80
"""GPUs that are busier were hardly kept waiting: Setpoint's own."""
DISK_SECONDS = 0.1
"""An operation, on the average: HostUnusualDiskReadLatency of Awesome Prometheus alerts."""
LEAST_OPERATIONS = 1.0
"""In a second; the latency of fewer is chance."""
CPU_BUSY, MEMORY_AVAILABLE = 0.90, 0.10
"""NodeCPUHighUsage and NodeMemoryHighUtilization of the node exporter's mixin."""
_WAITED = {"pressure_io": "I/O", "pressure_memory": "memory", "pressure_cpu": "a CPU"}


@dataclass(frozen=True, slots=True)
class HostFinding:
    name: str
    severity: str
    """bad, warn or ok, as everywhere on the GPU pages."""
    text: str
    limits_gpus: bool = False
    """True where GPUs that pods held were less busy than GPUS_BUSY while it was so."""


def of(figures: HostFigures, gpus_busy: Steps) -> list[HostFinding]:
    """`gpus_busy`: share by step of the GPUs that pods held; None: none was held, or nothing is known."""
    findings = [*_pressures(figures, gpus_busy), *_capacity(figures), *_disks(figures), *_links(figures)]
    order = {"bad": 0, "warn": 1, "ok": 2}
    return sorted(findings, key=lambda finding: (order[finding.severity], not finding.limits_gpus))


def _pressures(figures: HostFigures, gpus_busy: Steps) -> Iterator[HostFinding]:
    for name, threshold in PRESSURE.items():
        figure = figures.figures[name]
        high = [value for value in figure.known if value >= threshold]
        if not high or len(high) < LEAST_STEPS * len(figure.known):
            continue
        where = "" if len(high) == len(figure.known) else f" in {len(high)} of {len(figure.known)} steps"
        waited = 100 * sum(high) / len(high)
        text = f"{figure.title} {waited:.0f} % of the time{where}: some task waited for {_WAITED[name]}."
        is_high = [None if value is None else value >= threshold for value in figure.values]
        meanwhile, otherwise = (_mean(gpus_busy, is_high, of=is_meant) for is_meant in (True, False))
        if meanwhile is None:
            yield HostFinding(name, "warn", f"{text} No activity of a held GPU is known in that time.")
            continue
        rest = "" if otherwise is None else f", and {100 * otherwise:.0f} % busy in the rest"
        text = f"{text} GPUs that pods held were {100 * meanwhile:.0f} % busy meanwhile{rest}."
        limits = meanwhile < GPUS_BUSY
        yield HostFinding(name, "warn" if limits else "ok", text, limits)


def _mean(gpus_busy: Steps, is_high: Sequence[bool | None], *, of: bool) -> float | None:
    known = [busy for busy, high in zip(gpus_busy, is_high, strict=True) if busy is not None and high is of]
    return sum(known) / len(known) if known else None


def _capacity(figures: HostFigures) -> Iterator[HostFinding]:
    busy, available = figures.figures["cpu_busy"], figures.figures["memory_available"]
    if busy.mean is not None and busy.mean >= CPU_BUSY:
        yield HostFinding("cpu_busy", "warn", f"CPUs {100 * busy.mean:.0f} % busy on the average.")
    if available.mean is not None and available.mean <= MEMORY_AVAILABLE:
        text = f"Memory available {100 * available.mean:.0f} % on the average, page cache included."
        yield HostFinding("memory_available", "warn", text)
    if figures.oom_kills is not None and figures.oom_kills >= 0.5:
        count = round(figures.oom_kills)
        text = f"The kernel killed about {count:,} process{'es' if count != 1 else ''} for lack of memory."
        yield HostFinding("oom_kills", "bad", text)
    if figures.evictions:
        count, signals = sum(figures.evictions.values()), ", ".join(figures.evictions)
        yield HostFinding(
            "evictions", "bad", f"The kubelet evicted {count:,} pod{'s' if count != 1 else ''}: {signals}."
        )


def _disks(figures: HostFigures) -> Iterator[HostFinding]:
    for disk in figures.disks:
        slow = [
            f"{1000 * latency:,.0f} ms a {word} (worst step {1000 * (worst or 0):,.0f} ms)"
            for word, latency, worst, rate in (
                ("read", disk.read_latency, disk.worst_read, disk.reads),
                ("write", disk.write_latency, disk.worst_write, disk.writes),
            )
            if latency is not None and latency >= DISK_SECONDS and (rate or 0) >= LEAST_OPERATIONS
        ]
        if slow:
            yield HostFinding("disk_latency", "warn", f"Disk {disk.name}: {' and '.join(slow)} on the average.")


def _links(figures: HostFigures) -> Iterator[HostFinding]:
    for interface in figures.interfaces:
        if (errors := round(interface.errors or 0)) > 0:
            text = f"Network {interface.name}: about {errors:,} packet{'s' if errors != 1 else ''} with errors."
            yield HostFinding("network_errors", "warn", text)
    yield from _ports(figures.ports)


def _ports(ports: Sequence[Port]) -> Iterator[HostFinding]:
    is_used = any(port.state == ACTIVE for port in ports)
    for port in ports:
        if port.state is not None and port.state != ACTIVE and is_used:
            yield HostFinding("rdma_link", "warn", f"RDMA port {port.name} is {port.state_word}; others are active.")
        counts = [
            f"about {round(count):,} {word}"
            for word, count in (("link downs", port.downs), ("errors", port.errors))
            if count is not None and round(count) > 0
        ]
        if counts:
            severity = "bad" if port.downs is not None and round(port.downs) > 0 else "warn"
            yield HostFinding("rdma_errors", severity, f"RDMA port {port.name}: {', '.join(counts)}.")
