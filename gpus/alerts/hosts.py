"""Rules about the hosts of GPUs, for people's own Prometheus: Setpoint reads hosts for pages only and raises no alert.

The limits are those of the host's page. A node is one with GPUs where its exporter's `nodename` is the name that
exporters of GPUs print.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from gpus.reports.hosts.limits import DISK_SECONDS, LEAST_OPERATIONS, PRESSURE
from gpus.reports.hosts.queries import NO_DISK

LASTING, RATE = "10m", "5m"
_DISK = f'device!~"{NO_DISK}"'


class Selecting(Protocol):
    """Settings of the Prometheus that evaluates the rules."""

    def selected(self, raw: str, *more: str) -> str: ...


def alerts(way: Selecting, boards: str) -> Iterator[dict[str, Any]]:
    """Yield alerts; `boards` is a series with the label `node` for each node with GPUs."""
    slow = " or ".join(_slow(way, kind) for kind in ("read", "write"))
    latency = "{{ $value | humanizeDuration }} an operation on disk {{ $labels.device }} of {{ $labels.node }}"
    about = f"An operation took {1000 * DISK_SECONDS:g} ms or more on a disk of a node with GPUs for {LASTING}."
    yield _alert("host-disk-latency", _on_gpu_nodes(slow, way, boards), f"Disk latency: {latency}", about)
    waiting = _rate(way.selected("node_pressure_io_waiting_seconds_total"), "instance, job")
    high = f"{waiting} >= {PRESSURE['pressure_io']:g}"
    pressure = "some task waits for I/O {{ $value | humanizePercentage }} of the time on {{ $labels.node }}"
    about = f"I/O pressure was {100 * PRESSURE['pressure_io']:g} % or more on a node with GPUs for {LASTING}."
    yield _alert("host-io-pressure", _on_gpu_nodes(high, way, boards), f"I/O pressure: {pressure}", about)


def _slow(way: Selecting, kind: str) -> str:
    by = "instance, job, device"
    seconds = _rate(way.selected(f"node_disk_{kind}_time_seconds_total", _DISK), by)
    operations = _rate(way.selected(f"node_disk_{kind}s_completed_total", _DISK), by)
    latency = f"{seconds} / ({operations} >= {LEAST_OPERATIONS:g}) >= {DISK_SECONDS:g}"
    return f'label_replace({latency}, "operation", "{kind}", "", "")'


def _rate(selector: str, by: str) -> str:
    return f"max by ({by}) (rate({selector}[{RATE}]))"


def _on_gpu_nodes(expression: str, way: Selecting, boards: str) -> str:
    names = f"max by (instance, job, nodename) ({way.selected('node_uname_info')})"
    named = f"({expression}) * on (instance, job) group_left (nodename) {names}"
    return f'label_replace({named}, "node", "$1", "nodename", "(.+)") and on (node) {boards}'


def _alert(name: str, expression: str, summary: str, about: str) -> dict[str, Any]:
    return {
        "alert": f"Setpoint{''.join(part.capitalize() for part in name.split('-'))}",
        "expr": expression,
        "for": LASTING,
        "labels": {"severity": "warning", "setpoint_rule": name},
        "annotations": {"summary": summary, "description": about},
    }
