"""Hosts of one job side by side, read from Prometheus for one page view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from clusters.models import GpuJob
from common.clock import now
from gpus.reports.hosts import nodes
from gpus.reports.hosts.figures import SECONDS, SHARE, THROUGHPUT
from gpus.reports.hosts.nodes import SideBySide, SideHost

HOUR = timedelta(hours=1)
MARK = 1.5
"""A worst host is marked where it is so many times as bad as the median of the job's."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    title: str
    unit: str
    floor: float | None = None
    """A worse value than this is worth a mark; None: no value of it is bad in itself."""
    is_least_worst: bool = False


COLUMNS = (
    Column("cpu_busy", "CPU busy", SHARE, 0.5),
    Column("memory_available", "Memory available", SHARE, 0.2, is_least_worst=True),
    Column("pressure_cpu", "CPU pressure", SHARE, 0.05),
    Column("pressure_io", "I/O pressure", SHARE, 0.05),
    Column("pressure_memory", "Memory pressure", SHARE, 0.05),
    Column("disk_read_latency", "Read latency", SECONDS, 0.01),
    Column("disk_write_latency", "Write latency", SECONDS, 0.01),
    Column("network_received", "Network received", THROUGHPUT),
    Column("network_sent", "Network sent", THROUGHPUT),
    Column("rdma_received", "RDMA received", THROUGHPUT),
    Column("rdma_sent", "RDMA sent", THROUGHPUT),
)


@dataclass(frozen=True, slots=True)
class JobHosts:
    report: SideBySide
    worst: dict[str, str]
    """By column: the host whose value is the worst by far among the job's."""

    @property
    def columns(self) -> list[Column]:
        """Return those of which any host has a value."""
        return [column for column in COLUMNS if any(host.value(column.name) is not None for host in self.report.hosts)]


def of(job: GpuJob) -> JobHosts:
    """Read the last hour of the job's life, or all of a shorter one. Waits on the network: hold no transaction."""
    end = job.until(now())
    start = max(end - HOUR, job.started_at or job.queued_at)
    names = sorted({pod.node for pod in job.all_pods() if pod.node and (job.ended_at or pod.ended is None)})
    report = nodes.side_by_side(job.cluster_id, names, end, int((end - start).total_seconds()))
    return JobHosts(report, {column.name: worst for column in COLUMNS if (worst := _worst(report.hosts, column))})


def _worst(hosts: Sequence[SideHost], column: Column) -> str:
    known = {host.name: value for host in hosts if (value := host.value(column.name)) is not None}
    if len(known) < 2 or column.floor is None:
        return ""
    if column.is_least_worst:
        name = min(known, key=lambda host: (known[host], host))
        is_far_off = known[name] <= column.floor and MARK * known[name] <= median(known.values())
    else:
        name = max(known, key=lambda host: (known[host], host))
        is_far_off = known[name] >= column.floor and known[name] >= MARK * median(known.values())
    return name if is_far_off else ""
