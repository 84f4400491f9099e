"""Rules about the hosts of GPUs for people's own Prometheus, with the limits that hold: as those of `host_loads`.

A node is one with GPUs where its exporter's `nodename` is the name that exporters of GPUs print.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Protocol

from gpus.alerts.host_loads import DISK, IO
from gpus.reports.hosts.limits import LEAST_OPERATIONS
from gpus.reports.hosts.queries import NO_DISK

RATE = "5m"
NAMES = (DISK, IO)
_DISK = f'device!~"{NO_DISK}"'


class Selecting(Protocol):
    """Settings of the Prometheus that evaluates the rules."""

    def selected(self, raw: str, *more: str) -> str: ...


class Holding(Protocol):
    """A rule with what holds of it."""

    @property
    def threshold(self) -> float | None: ...
    @property
    def opens_after(self) -> timedelta: ...


def alerts(way: Selecting, boards: str, holding: Mapping[str, Holding]) -> Iterator[dict[str, Any]]:
    """Yield alerts of the rules that are there; `boards` is a series with the label `node` for each node with GPUs."""
    if disk := holding.get(DISK):
        limit = disk.threshold or 0.0
        slow = " or ".join(_slow(way, kind, limit / 1000) for kind in ("read", "write"))
        latency = "{{ $value | humanizeDuration }} an operation on disk {{ $labels.device }} of {{ $labels.node }}"
        about = f"An operation took {limit:g} ms or more on a disk of a node with GPUs."
        yield _alert(DISK, _on_gpu_nodes(slow, way, boards), f"Disk latency: {latency}", about, disk.opens_after)
    if io := holding.get(IO):
        limit = io.threshold or 0.0
        waiting = _rate(way.selected("node_pressure_io_waiting_seconds_total"), "instance, job")
        high = _on_gpu_nodes(f"{waiting} >= {limit / 100:g}", way, boards)
        pressure = "some task waits for I/O {{ $value | humanizePercentage }} of the time on {{ $labels.node }}"
        about = f"I/O pressure was {limit:g} % or more on a node with GPUs."
        yield _alert(IO, high, f"I/O pressure: {pressure}", about, io.opens_after)


def _slow(way: Selecting, kind: str, limit: float) -> str:
    by = "instance, job, device"
    seconds = _rate(way.selected(f"node_disk_{kind}_time_seconds_total", _DISK), by)
    operations = _rate(way.selected(f"node_disk_{kind}s_completed_total", _DISK), by)
    latency = f"{seconds} / ({operations} >= {LEAST_OPERATIONS:g}) >= {limit:g}"
    return f'label_replace({latency}, "operation", "{kind}", "", "")'


def _rate(selector: str, by: str) -> str:
    return f"max by ({by}) (rate({selector}[{RATE}]))"


def _on_gpu_nodes(expression: str, way: Selecting, boards: str) -> str:
    names = f"max by (instance, job, nodename) ({way.selected('node_uname_info')})"
    named = f"({expression}) * on (instance, job) group_left (nodename) {names}"
    return f'label_replace({named}, "node", "$1", "nodename", "(.+)") and on (node) {boards}'


def _alert(name: str, expression: str, summary: str, about: str, lasting: timedelta) -> dict[str, Any]:
    return {
        "alert": f"Setpoint{''.join(part.capitalize() for part in name.split('-'))}",
        "expr": expression,
        "for": f"{round(lasting.total_seconds())}s",
        "labels": {"severity": "warning", "setpoint_rule": name},
        "annotations": {"summary": summary, "description": about},
    }
