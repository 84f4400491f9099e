"""Counters of the node exporter on a simulated host, at any time: rates that vary around a mean, and their integrals.

Names, labels and types are the node exporter's own. A counter's value follows from the host's name and the time alone,
so a history of a day is there at once, and every rate can be computed by hand.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

PERIOD = 7200.0
"""Seconds in which load comes and goes."""
SWING = 0.3
GIB = 1024.0**3
CORES = 4
"""Exported; a real host has more, and the shares are the same."""
Labels = dict[str, str]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Means of a host's rates."""

    cpu: float = 0.35
    iowait: float = 0.02
    memory_gib: float = 2048.0
    available: float = 0.62
    cache: float = 0.30
    pressure_cpu: float = 0.03
    pressure_io: float = 0.02
    pressure_memory: float = 0.001
    read_latency: float = 0.0004
    """Seconds an operation."""
    write_latency: float = 0.0009
    reads: float = 900.0
    """Operations in a second, of each NVMe disk."""
    writes: float = 250.0
    network: float = 250e6
    """Bytes in a second, each way."""
    rdma: float = 9e9
    """Of each port."""
    ports: int = 2
    down: frozenset[int] = frozenset()
    """Ports without a link."""


CALM = HostLoad()
SLOW_DISK = HostLoad(
    cpu=0.22, iowait=0.19, pressure_io=0.41, read_latency=0.165, write_latency=0.04, reads=180.0, rdma=1.5e9
)
"""A worn disk: data loaders wait, and GPUs with them."""


def samples(node: str, at: float, load: HostLoad, boot: float = 1_780_000_000.0) -> Iterator[Sample]:
    """Yield what the exporter prints at this time."""
    phase = int(hashlib.sha256(node.encode()).hexdigest()[:6], 16) / 0xFFFFFF * math.tau
    passed, high = _integral(at, boot, phase), 1 + SWING * math.sin(math.tau * at / PERIOD + phase)
    yield "node_uname_info", {"nodename": node, "sysname": "Linux", "machine": "x86_64", "domainname": "(none)"}, 1.0
    yield "node_boot_time_seconds", {}, boot
    busy, waits = load.cpu * passed, load.iowait * passed
    for core in range(CORES):
        modes = {"user": 0.8 * busy, "system": 0.2 * busy, "iowait": waits, "idle": at - boot - busy - waits}
        for mode, seconds in modes.items():
            yield "node_cpu_seconds_total", {"cpu": str(core), "mode": mode}, seconds
    total = load.memory_gib * GIB
    yield "node_memory_MemTotal_bytes", {}, total
    yield "node_memory_MemAvailable_bytes", {}, total * min(1.0, load.available * (2 - high))
    yield "node_memory_Cached_bytes", {}, total * load.cache
    for name, share in (("cpu", load.pressure_cpu), ("io", load.pressure_io), ("memory", load.pressure_memory)):
        yield f"node_pressure_{name}_waiting_seconds_total", {}, share * passed
        if name != "cpu":
            yield f"node_pressure_{name}_stalled_seconds_total", {}, share * passed / 2
    yield "node_vmstat_oom_kill", {}, 0.0
    yield from _disks(load, passed)
    yield from _links(load, passed)


def _disks(load: HostLoad, passed: float) -> Iterator[Sample]:
    for disk in ("nvme0n1", "nvme1n1"):
        slow = disk == "nvme1n1"
        reads, writes = load.reads * passed, load.writes * passed
        read = (load.read_latency if slow else CALM.read_latency) * reads
        write = (load.write_latency if slow else CALM.write_latency) * writes
        for name, value in (
            ("reads_completed", reads), ("writes_completed", writes), ("read_time_seconds", read),
            ("write_time_seconds", write), ("read_bytes", 131072 * reads), ("written_bytes", 65536 * writes),
            ("io_time_seconds", min(1.0, load.reads * load.read_latency / 8) * passed),
        ):  # fmt: skip
            yield f"node_disk_{name}_total", {"device": disk}, value


def _links(load: HostLoad, passed: float) -> Iterator[Sample]:
    for way in ("receive", "transmit"):
        yield f"node_network_{way}_bytes_total", {"device": "eth0"}, load.network * passed
        yield f"node_network_{way}_bytes_total", {"device": "lo"}, 1e6 * passed
        yield f"node_network_{way}_errs_total", {"device": "eth0"}, 0.0
        yield f"node_network_{way}_drop_total", {"device": "eth0"}, 0.0
    for number in range(load.ports):
        port, carried = {"device": f"mlx5_{number}", "port": "1"}, 0.0 if number in load.down else load.rdma * passed
        for way in ("received", "transmitted"):
            yield f"node_infiniband_port_data_{way}_bytes_total", port, carried
        yield "node_infiniband_port_errors_received_total", port, 0.0
        yield "node_infiniband_symbol_error_total", port, 0.0
        yield "node_infiniband_port_discards_transmitted_total", port, 0.0
        yield "node_infiniband_link_downed_total", port, 0.0
        yield "node_infiniband_state_id", port, 1.0 if number in load.down else 4.0
        yield "node_infiniband_rate_bytes_per_second", port, 50e9


def _integral(at: float, boot: float, phase: float) -> float:
    """Return the integral of 1 + SWING × sin(τt/PERIOD + phase) from boot to `at`."""
    turn = math.tau / PERIOD
    return at - boot - SWING / turn * (math.cos(turn * at + phase) - math.cos(turn * boot + phase))
