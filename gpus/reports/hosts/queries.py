"""PromQL for figures of hosts: the node exporter's own names, and DCGM's for PCIe and NVLink.

Every query gives means over a step: rates of counters, averages of gauges. `max` drops copies that replicas of a
Prometheus leave; only CPU seconds are summed, over the cores, for they are used as shares of their own total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OF_TARGET = ("instance", "job")
NO_DISK = "dm-.*|md.*|loop.*|z?ram.*|sr.*|fd.*"
"""What lies over other disks would count their operations twice; the rest holds no data of a job."""
NO_LINK = (
    "lo|veth.*|cali.*|lxc.*|cilium.*|docker.*|cni.*|br-.*|virbr.*|flannel.*|kube-.*|vxlan.*|genev.*|tunl.*|ip6tnl.*|"
    "sit.*|dummy.*|nodelocaldns|ovs-.*|bond.*|team.*|.*[.].*"
)
"""Pods' ends, bridges, tunnels, VLANs and bonds: their bytes are those of a port below them."""
_DISK, _LINK = f'device!~"{NO_DISK}"', f'device!~"{NO_LINK}"'


@dataclass(frozen=True, slots=True)
class Query:
    """One figure as Prometheus gives it."""

    name: str
    metric: str
    kind: str
    """rate of a counter, mean of a gauge, or state: its value at the end of the step."""
    by: tuple[str, ...] = ()
    """Labels that tell several series of one host apart."""
    matcher: str = ""
    is_summed: bool = False
    is_total: bool = False
    """Added up over `by`, so that a host has one series."""

    def text(self, matchers: Sequence[str], seconds: int) -> str:
        inside = ",".join(part for part in (*matchers, self.matcher) if part)
        series = f"{self.metric}{{{inside}}}"
        function = {"rate": "rate", "mean": "avg_over_time"}.get(self.kind)
        inner = f"{function}({series}[{seconds}s])" if function else series
        text = f"{'sum' if self.is_summed else 'max'} by ({', '.join(self.labels)}) ({inner})"
        return f"sum by ({', '.join(self.key)}) ({text})" if self.is_total else text

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.key, *self.by)

    @property
    def key(self) -> tuple[str, ...]:
        """Labels that tell hosts apart; a GPU is known by its UUID."""
        return () if self.metric.startswith("DCGM_") else OF_TARGET


def _rates(metrics: Iterable[tuple[str, str]], *by: str, matcher: str = "") -> list[Query]:
    return [Query(name, f"node_{metric}", "rate", by, matcher) for name, metric in metrics]


HOST: tuple[Query, ...] = (
    Query("cpu", "node_cpu_seconds_total", "rate", ("mode",), is_summed=True),
    *[
        Query(name, f"node_memory_{field}_bytes", "mean")
        for name, field in (
            ("memory_total", "MemTotal"),
            ("memory_available", "MemAvailable"),
            ("page_cache", "Cached"),
        )
    ],
    *_rates(
        [
            ("pressure_cpu", "pressure_cpu_waiting_seconds_total"),
            ("pressure_io", "pressure_io_waiting_seconds_total"),
            ("pressure_io_full", "pressure_io_stalled_seconds_total"),
            ("pressure_memory", "pressure_memory_waiting_seconds_total"),
            ("pressure_memory_full", "pressure_memory_stalled_seconds_total"),
            ("oom_kills", "vmstat_oom_kill"),
        ]
    ),
    *_rates(
        [
            ("read_seconds", "disk_read_time_seconds_total"),
            ("write_seconds", "disk_write_time_seconds_total"),
            ("reads", "disk_reads_completed_total"),
            ("writes", "disk_writes_completed_total"),
            ("bytes_read", "disk_read_bytes_total"),
            ("bytes_written", "disk_written_bytes_total"),
            ("disk_busy", "disk_io_time_seconds_total"),
        ],
        "device",
        matcher=_DISK,
    ),
    *_rates(
        [
            ("net_received", "network_receive_bytes_total"),
            ("net_sent", "network_transmit_bytes_total"),
            ("net_errors_received", "network_receive_errs_total"),
            ("net_errors_sent", "network_transmit_errs_total"),
            ("net_drops_received", "network_receive_drop_total"),
            ("net_drops_sent", "network_transmit_drop_total"),
        ],
        "device",
        matcher=_LINK,
    ),
    *_rates(
        [
            ("rdma_received", "infiniband_port_data_received_bytes_total"),
            ("rdma_sent", "infiniband_port_data_transmitted_bytes_total"),
            ("rdma_errors", "infiniband_port_errors_received_total"),
            ("rdma_symbol_errors", "infiniband_symbol_error_total"),
            ("rdma_discards", "infiniband_port_discards_transmitted_total"),
            ("rdma_downs", "infiniband_link_downed_total"),
        ],
        "device",
        "port",
    ),
    Query("rdma_state", "node_infiniband_state_id", "state", ("device", "port")),
    Query("rdma_rate", "node_infiniband_rate_bytes_per_second", "state", ("device", "port")),
)
GPU: tuple[Query, ...] = tuple(
    Query(name, f"DCGM_FI_{field}", "mean", ("UUID",))
    for name, field in (
        ("pcie_sent", "PROF_PCIE_TX_BYTES"), ("pcie_received", "PROF_PCIE_RX_BYTES"),
        ("nvlink_sent", "PROF_NVLINK_TX_BYTES"), ("nvlink_received", "PROF_NVLINK_RX_BYTES"),
        ("nvlink_both", "DEV_NVLINK_BANDWIDTH_TOTAL"),
    )
)  # fmt: skip
"""Rates already, also where a list of counters calls them counters; the last one in MB/s."""
NVLINK_BOTH_SCALE = 1e6
_SIDE = frozenset(
    {
        "cpu", "memory_total", "memory_available", "pressure_cpu", "pressure_io", "pressure_memory", "oom_kills",
        "read_seconds", "write_seconds", "reads", "writes", "bytes_read", "bytes_written", "net_received", "net_sent",
        "rdma_received", "rdma_sent", "rdma_errors", "rdma_downs", "rdma_state",
    }
)  # fmt: skip
SIDE_BY_SIDE = tuple(query for query in HOST if query.name in _SIDE)
"""For the hosts of a job."""


def alternatives(texts: Iterable[str]) -> str:
    """Return a regular expression of these texts for a quoted PromQL string."""
    return "|".join(
        "".join(letter if letter.isalnum() or letter in "-_:/" else f"[{letter}]" for letter in text)
        for text in texts
        if not set(text) & set('"\\[]^\n')
    )
