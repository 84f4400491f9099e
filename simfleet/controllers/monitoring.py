"""A Prometheus in the simulated cluster that has scraped every node exporter at all times that a query names.

It evaluates the PromQL of a page that shows hosts: `max`, `sum` or `count` by labels, of selectors joined by `or`, or
of `rate` or `avg_over_time` of one; another expression is refused as Prometheus refuses what it cannot parse. Targets
carry the labels of kube-prometheus-stack without relabelings: a node is known by `node_uname_info` alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from simfleet.apiserver.store import Raw
from simfleet.machines.host_counters import CALM, HostLoad, Labels, samples

if TYPE_CHECKING:
    from simfleet.core import SimCluster

NAMESPACE, NAME, PORT = "monitoring", "prometheus-operated", "9090"
_AGGREGATE = re.compile(r"(max|sum|count) by \(([\w, ]*)\) \((.*)\)", re.DOTALL)
_FUNCTION = re.compile(r"(rate|avg_over_time)\((.*)\[(\d+)s\]\)", re.DOTALL)
_SELECTOR = re.compile(r'(\w*)\{((?:[^"}]|"[^"]*")*)\}', re.DOTALL)
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_COUNTED = re.compile(r"count\((.*)\)", re.DOTALL)
MOST_STEPS = 11_000
POINTS = 4
"""Of an average over time: gauges here are smooth."""
Vector = dict[tuple[tuple[str, str], ...], float]


class _Refused(Exception):
    """The expression or a parameter is none that is known here."""


class Monitoring:
    """Answers at the service once it is installed; `loads` has the hosts that differ from CALM."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.loads: dict[str, HostLoad] = {}
        self.hidden: set[str] = set()
        """Beginnings of names that no exporter prints: collectors that are switched off."""
        self._numbers: dict[str, int] = {}

    def install(self) -> None:
        """Create the service by which Prometheus is reached."""
        self._cluster.proxies.answerers["services"].append(self._answer)
        self._cluster.ensure_namespace(NAMESPACE)
        ports = [{"name": "http-web", "port": int(PORT), "targetPort": "http-web", "protocol": "TCP"}]
        metadata = {"name": NAME, "namespace": NAMESPACE, "labels": {"operated-prometheus": "true"}}
        spec = {"clusterIP": "None", "ports": ports, "type": "ClusterIP"}
        self._cluster.store.create("services", {"metadata": metadata, "spec": spec})

    def text(self, node: str, at: float) -> str:
        """Return what a host's exporter answers at this time."""
        lines = []
        for name, labels, value in samples(node, at, self.loads.get(node, CALM)):
            words = ",".join(f'{key}="{text}"' for key, text in labels.items())
            lines.append(f"{name}{{{words}}} {value!r}" if words else f"{name} {value!r}")
        return "\n".join([*lines, ""])

    def _answer(self, service: Raw, port: str, path: str, query: Mapping[str, str]) -> tuple[int, str] | None:
        if (service["metadata"]["namespace"], service["metadata"]["name"], port) != (NAMESPACE, NAME, PORT):
            return None
        try:
            if path == "api/v1/query":
                at = float(query.get("time", self._cluster.clock.now().timestamp()))
                rows = [{"metric": dict(key), "value": [at, repr(value)]} for key, value in self._at(query, at).items()]
                return 200, _success("vector", rows)
            if path == "api/v1/query_range":
                return 200, _success("matrix", self._over(query))
        except (_Refused, KeyError, ValueError) as error:
            return 400, json.dumps({"status": "error", "errorType": "bad_data", "error": f"invalid parameter: {error}"})
        return 404, "404 page not found\n"

    def _over(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        start, end, step = float(query["start"]), float(query["end"]), float(query["step"])
        steps = int((end - start) / step) + 1
        if step <= 0 or steps > MOST_STEPS:
            raise _Refused("exceeded maximum resolution of 11,000 points per timeseries")
        rows: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
        for at in (start + number * step for number in range(steps)):
            for key, value in self._at(query, at).items():
                rows.setdefault(key, []).append([at, repr(value)])
        return [{"metric": dict(key), "values": values} for key, values in rows.items()]

    def _at(self, query: Mapping[str, str], at: float) -> Vector:
        text = query["query"].strip()
        if counted := _COUNTED.fullmatch(text):
            if _AGGREGATE.fullmatch(counted[1]):
                number = len(self._at({"query": counted[1]}, at))
                return {(): float(number)} if number else {}
            text = f"count by () ({counted[1]})"
        match = _AGGREGATE.fullmatch(text)
        if match is None:
            raise _Refused(f"unknown expression {text[:80]!r}")
        by = [name.strip() for name in match[2].split(",") if name.strip()]
        groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
        for labels, value in self._inner(match[3].strip(), at):
            key = tuple((name, labels[name]) for name in by if labels.get(name))
            groups.setdefault(key, []).append(value)
        return {key: _aggregate(match[1], values) for key, values in groups.items()}

    def _inner(self, text: str, at: float) -> Iterator[tuple[Labels, float]]:
        if function := _FUNCTION.fullmatch(text):
            seconds = float(function[3])
            times = (at - seconds, at) if function[1] == "rate" else tuple(
                at - seconds * part / POINTS for part in range(POINTS)
            )  # fmt: skip
            columns = [dict(self._selected(function[2], when)) for when in times]
            for key, last in columns[-1 if function[1] == "rate" else 0].items():
                values = [column[key] for column in columns if key in column]
                value = (last - values[0]) / seconds if function[1] == "rate" else sum(values) / len(values)
                yield {name: label for name, label in key if name != "__name__"}, value
            return
        seen = set()
        for part in text.split(" or "):
            for key, value in self._selected(part, at):
                if key not in seen:
                    seen.add(key)
                    yield dict(key), value

    def _selected(self, text: str, at: float) -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
        selector = _SELECTOR.fullmatch(text.strip())
        if selector is None:
            raise _Refused(f"unknown selector {text[:80]!r}")
        matchers = [(name, how, re.compile(wanted) if "~" in how else wanted)
                    for name, how, wanted in _MATCHER.findall(selector[2])]  # fmt: skip
        for labels, value in self._series(selector[1], at, matchers):
            if all(_is_match(labels.get(name, ""), how, wanted) for name, how, wanted in matchers):
                yield tuple(sorted(labels.items())), value

    def _series(self, metric: str, at: float, matchers: list[Any]) -> Iterator[tuple[Labels, float]]:
        if not metric.startswith("node_") or metric.startswith(tuple(self.hidden)):
            return
        for node in self._hosts():
            target = self.target(node)
            if all(_is_match(target["instance"], how, wanted) for name, how, wanted in matchers if name == "instance"):
                for name, labels, value in samples(node, at, self.loads.get(node, CALM)):
                    if name == metric:
                        yield {"__name__": name, **target, **labels}, value

    def _hosts(self) -> list[str]:
        with self._cluster.lock:
            names = [stored.key[1] for stored in self._cluster.store.all("nodes")]
        return [name for name in names if (machine := self._cluster.nodes.machine(name)) and machine.is_up]

    def target(self, node: str) -> Labels:
        """Labels of a host's target, as kube-prometheus-stack's ServiceMonitor leaves them."""
        number = self._numbers.setdefault(node, len(self._numbers) + 1)
        service = "kube-prometheus-stack-prometheus-node-exporter"
        return {
            "container": "node-exporter",
            "endpoint": "http-metrics",
            "instance": f"10.0.{number >> 8 & 255}.{number & 255}:9100",
            "job": "node-exporter",
            "namespace": NAMESPACE,
            "pod": f"{service}-{number:05d}",
            "service": service,
        }


def _aggregate(name: str, values: list[float]) -> float:
    return max(values) if name == "max" else sum(values) if name == "sum" else float(len(values))


def _is_match(value: str, how: str, wanted: Any) -> bool:
    if "~" in how:
        return bool(wanted.fullmatch(value)) == (how == "=~")
    return bool(value == wanted) == (how == "=")


def _success(kind: str, rows: list[dict[str, Any]]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": rows}})
