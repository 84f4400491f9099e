"""A Prometheus that knows the hosts of a rollout's nodes: each rate is known, and what is lost is not answered."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from clusters.fleet import FleetUnavailable, Reply
from gpus.models import TelemetrySource
from gpus.telemetry.expressions import Expressions
from tests.gpus.studying import Worked

CALM: Mapping[str, float] = {
    "node_pressure_io_waiting_seconds_total": 0.20,
    "node_pressure_memory_waiting_seconds_total": 0.01,
    "node_pressure_cpu_waiting_seconds_total": 0.05,
    "node_disk_read_time_seconds_total": 0.9,
    "node_disk_reads_completed_total": 900.0,
    "node_network_receive_bytes_total": 250e6,
    "node_infiniband_port_data_received_bytes_total": 9e9,
}
"""Rates of a host, its disks and ports added up."""


class HostTruth:
    """Rates of hosts by node; `after` has what they are times from its node's change on."""

    def __init__(self, scenario: Worked) -> None:
        self.scenario = scenario
        self.after: dict[str, float] = {}
        self.silent: dict[str, set[str]] = {}
        """Metrics that no host has, by node; under "" of all."""
        self.lost: Callable[[str, datetime], bool] = lambda _node, _at: False
        self.nameless: set[str] = set()
        """Nodes that no target is named after."""
        self.is_down = False
        self.refused: set[str] = set()
        """Metrics whose queries are refused."""
        self.asked: list[Mapping[str, str]] = []

    def instance(self, node: str) -> str:
        return f"10.9.0.{int(node[1:])}:9100"

    def expressions(self, _source: TelemetrySource, *, seconds: float) -> Expressions:
        """Replacement for gpus.telemetry.factory.expressions."""
        return Expressions(self.ask, "Prometheus", "", time.monotonic() + seconds)

    def ask(self, path: str, parameters: Mapping[str, str], _limit: int, _seconds: float) -> Reply:
        self.asked.append(parameters)
        if self.is_down:
            raise FleetUnavailable("connection refused")
        query = parameters["query"]
        if any(metric in query for metric in self.refused):
            return Reply(422, json.dumps({"status": "error", "errorType": "execution", "error": "too many"}).encode())
        names = [node.name for node in self.scenario.nodes]
        if "node_uname_info" in query:
            rows = [
                {"metric": self._labels(name) | {"nodename": name}, "value": [0, "1"]}
                for name in names
                if name not in self.nameless
            ]
        else:
            assert path == "api/v1/query_range"
            rows = list(filter(None, (self._series(query, name, parameters) for name in names)))
        return Reply(200, json.dumps({"status": "success", "data": {"result": rows}}).encode())

    def _labels(self, node: str) -> dict[str, str]:
        return {"instance": self.instance(node), "job": "node-exporter"}

    def _series(self, query: str, node: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        match = re.search(r"rate\((node_\w+)\{.*\}\[300s\]\)", query)
        assert match, query
        metric, (start, end, step) = match[1], (float(parameters[name]) for name in ("start", "end", "step"))
        if metric in self.silent.get("", set()) | self.silent.get(node, set()):
            return None
        if self.instance(node).replace(".", "[.]") not in query:
            return None
        values = []
        for number in range(int((end - start) / step) + 1):
            at = start + number * step
            begin = datetime.fromtimestamp(at - step, UTC)
            if not self.lost(node, begin):
                values.append([at, repr(self.rate(metric, node, begin))])
        return {"metric": self._labels(node), "values": values} if values else None

    def rate(self, metric: str, node: str, at: datetime) -> float:
        own = 1 + 0.02 * (int(node[1:]) % 5)  # hosts differ
        drift = 1 + 0.01 * ((int(node[1:]) * 7 + at.hour) % 3)
        changed = self.scenario.truth.changed_at.get(node)
        return CALM[metric] * own * drift * (self.after.get(metric, 1.0) if changed and at >= changed else 1.0)
