"""Measures of a study: of each GPU, and of the host beside it. Their order is that of pages and of REST."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    title: str
    unit: str
    """%: a share of time, stored as 0-1."""
    meaning: str
    by_points: bool = False
    """Judged by the difference: of a share that often is 0, a ratio says nothing."""
    good: int = 1
    """1: more is better; -1: less is; 0: neither by itself."""
    of_host: bool = False
    """One figure of a node, read from Prometheus; else one of each GPU."""
    digits: int = 0
    """Behind the point, in the measure's unit; shares have one."""

    @property
    def better(self) -> str:
        return {1: "higher", -1: "lower"}.get(self.good, "neither")


GPU_MEASURES = (
    Measure("busy", "Busy", "%", "any kernel ran"),
    Measure("tensor", "Tensor", "%", "the tensor pipe was active"),
    Measure("ofu", "OFU", "%", "tensor activity × SM clock ÷ the board's highest"),
    Measure("sm_clock", "SM clock", "MHz", "while held"),
    Measure("throttled", "Throttled", "%", "time throttled by power or heat", by_points=True, good=-1),
    Measure("watts", "Power", "W", "of a GPU while it is busy", good=0),
)
_SOME_TASK = "time in which some task of the host waited for"
HOST_MEASURES = (
    Measure("io_pressure", "I/O pressure", "%", f"{_SOME_TASK} I/O", by_points=True, good=-1, of_host=True),
    Measure("memory_pressure", "Memory pressure", "%", f"{_SOME_TASK} memory", by_points=True, good=-1, of_host=True),
    Measure("cpu_pressure", "CPU pressure", "%", f"{_SOME_TASK} a CPU", by_points=True, good=-1, of_host=True),
    Measure(
        "read_latency", "Disk read latency", "ms", "of a read, over the host's disks", good=-1, of_host=True, digits=2
    ),
    Measure("net_received", "Network received", "MB/s", "by the host, RDMA apart", good=0, of_host=True, digits=1),
    Measure("rdma_received", "RDMA received", "MB/s", "InfiniBand, or RoCE", of_host=True, digits=1),
)
"""More from the network is better or worse by what is loaded, so neither; of what GPUs exchange by RDMA it is more
steps."""
MEASURES = GPU_MEASURES + HOST_MEASURES
BY_NAME = {measure.name: measure for measure in MEASURES}
PRIMARY = ("ofu", "tensor", "busy")
"""The first of these that is reported is what a study is about, unless the plan names a measure; all others are further
looks at the same rollout."""


def primary(reported: Container[str]) -> str:
    """Return the primary measure where none is named; empty if none of them is reported."""
    return next((name for name in PRIMARY if name in reported), "")
