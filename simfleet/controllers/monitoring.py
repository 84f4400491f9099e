"""A Prometheus in the simulated cluster that has scraped every node exporter at all times that a query names.

It evaluates the PromQL of pages and alerts about hosts and inference servers: `max`, `min`, `sum`, `avg` or `count`
by labels, of each other, of selectors joined by `or`, of `rate` or a function over time of one, or of those `and on`
others, all of these or those above zero; one of these divided by another, those of at least a number, and `topk` of
them. Another expression is refused as Prometheus refuses what it cannot parse. Targets carry the labels of
kube-prometheus-stack without relabelings: a node is known by `node_uname_info` alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet.apiserver.store import Raw
from simfleet.machines.host_counters import CALM, HostLoad, Labels, Sample, samples
from simfleet.machines.inference_counters import ServingLoad
from simfleet.machines.inference_counters import samples as serving
from simfleet.machines.training_counters import TrainingLoad
from simfleet.machines.training_counters import samples as training

if TYPE_CHECKING:
    from simfleet.core import SimCluster

NAMESPACE, NAME, PORT = "monitoring", "prometheus-operated", "9090"
_AGGREGATE = re.compile(r"(max|min|sum|avg|count) by \(([\w, ]*)\) \((.*)\)", re.DOTALL)
_BOTH = re.compile(r"(.*) and on \(([\w, ]*)\) (.*)", re.DOTALL)
_POSITIVE = re.compile(r"\((.*)\) > 0", re.DOTALL)
_FUNCTION = re.compile(r"(rate|(?:avg|max|count)_over_time)\((.*)\[(\d+)([sm])\]\)", re.DOTALL)
_SELECTOR = re.compile(r'([\w:]*)\{((?:[^"}]|"[^"]*")*)\}', re.DOTALL)
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_COUNTED = re.compile(r"count\((.*)\)", re.DOTALL)
_HIGHEST = re.compile(r"topk\((\d+), (.*)\)", re.DOTALL)
MOST_STEPS = 11_000
POINTS = 4
"""Of an average over time: gauges here are smooth."""
Vector = dict[tuple[tuple[str, str], ...], float]


class _Refused(Exception):
    """The expression or a parameter is none that is known here."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """A target beside the node exporters."""

    labels: Labels
    samples: Callable[[float], Iterable[Sample]]
    """What it prints at a time."""


class Monitoring:
    """Answers at the service once it is installed; `loads` has the hosts that differ from CALM."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.loads: dict[str, HostLoad] = {}
        self.scraped: list[Callable[[], Iterable[Scraped]]] = [self._kubelets]
        self.evicted: dict[str, dict[str, list[float]]] = {}
        """Times at which a node's kubelet evicted a pod, by signal."""
        self.hidden: set[str] = set()
        """Beginnings of names that no exporter prints: collectors that are switched off."""
        self._numbers: dict[str, int] = {}
        self._asked = threading.local()

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
        self._asked.targets = None
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
        if highest := _HIGHEST.fullmatch(text):
            values = self._at({"query": highest[2]}, at)
            return dict(sorted(values.items(), key=lambda item: -item[1])[: int(highest[1])])
        if operation := _operation(text):
            return self._computed(*operation, at)
        match = _AGGREGATE.fullmatch(text)
        if match is None:
            raise _Refused(f"unknown expression {text[:80]!r}")
        by = [name.strip() for name in match[2].split(",") if name.strip()]
        groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
        for labels, value in self._inner(match[3].strip(), at):
            key = tuple((name, labels[name]) for name in by if labels.get(name))
            groups.setdefault(key, []).append(value)
        return {key: _aggregate(match[1], values) for key, values in groups.items()}

    def _computed(self, left: str, operator: str, right: str, at: float) -> Vector:
        """Return the values of at least a number, or one vector divided by another whose labels are the same.

        Nothing is returned for a division by zero, where Prometheus answers NaN or Inf.
        """
        values = self._at({"query": left}, at)
        if operator == ">=":
            return {key: value for key, value in values.items() if value >= float(right)}
        by = self._at({"query": right[1:-1] if right.startswith("(") else right}, at)
        return {key: value / by[key] for key, value in values.items() if by.get(key)}

    def _inner(self, text: str, at: float) -> Iterator[tuple[Labels, float]]:
        if _AGGREGATE.fullmatch(text):
            for key, value in self._at({"query": text}, at).items():
                yield dict(key), value
        elif positive := _POSITIVE.fullmatch(text):
            yield from ((labels, value) for labels, value in self._inner(positive[1], at) if value > 0)
        elif both := _BOTH.fullmatch(text):
            on = [name.strip() for name in both[2].split(",")]
            there = {tuple(labels.get(name, "") for name in on) for labels, _ in self._inner(both[3], at)}
            for labels, value in self._inner(both[1], at):
                if tuple(labels.get(name, "") for name in on) in there:
                    yield labels, value
        elif function := _FUNCTION.fullmatch(text):
            seconds = float(function[3]) * (60 if function[4] == "m" else 1)
            yield from self._function(function[1], function[2], seconds, at)
        else:
            seen = set()
            for part in text.split(" or "):
                for key, value in self._selected(part, at):
                    if key not in seen:
                        seen.add(key)
                        yield dict(key), value

    def _function(self, name: str, selector: str, seconds: float, at: float) -> Iterator[tuple[Labels, float]]:
        times = (at - seconds, at) if name == "rate" else tuple(at - seconds * part / POINTS for part in range(POINTS))
        columns = [dict(self._selected(selector, when)) for when in times]
        for key in dict.fromkeys(key for column in columns for key in column):
            values = [column[key] for column in columns if key in column]
            if name == "rate":
                # What began in the meantime has counted from zero.
                value = (columns[1].get(key, 0.0) - columns[0].get(key, 0.0)) / seconds
            else:
                value = {"max": max(values), "count": float(len(values))}.get(
                    name.partition("_")[0], sum(values) / len(values)
                )
            yield {label: text for label, text in key if label != "__name__"}, value

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
        if metric.startswith(tuple(self.hidden)):
            return
        if not metric.startswith("node_"):
            yield from self._of_servers(metric, at, matchers)
            return
        for node in self._hosts():
            target = self.target(node)
            if all(_is_match(target["instance"], how, wanted) for name, how, wanted in matchers if name == "instance"):
                for name, labels, value in samples(node, at, self.loads.get(node, CALM)):
                    if name == metric:
                        yield {"__name__": name, **target, **labels}, value

    def _of_servers(self, metric: str, at: float, matchers: list[Any]) -> Iterator[tuple[Labels, float]]:
        """Yield a metric of the other targets, or all of them without a name.

        Labels that a target has are renamed, as without honor_labels.
        """
        of_target = [matcher for matcher in matchers if matcher[0] in ("namespace", "pod")]
        for target in self._targets():
            if not all(_is_match(target.labels[n], how, wanted) for n, how, wanted in of_target if n in target.labels):
                continue
            if metric == "up":
                yield {"__name__": metric, **target.labels}, 1.0
                continue
            for name, labels, value in target.samples(at):
                if metric in (name, ""):
                    own = {f"exported_{key}" if key in target.labels else key: text for key, text in labels.items()}
                    yield {"__name__": name, **own, **target.labels}, value

    def _targets(self) -> list[Scraped]:
        """Return the targets beside node exporters; a query asks for them at each of its steps."""
        targets: list[Scraped] | None = getattr(self._asked, "targets", None)
        if targets is None:
            targets = self._asked.targets = [target for several in self.scraped for target in several()]
        return targets

    def trains(self, namespace: str, job: str, load: TrainingLoad) -> None:
        """Scrape the trainer of the first rank of this Job, as a PodMonitor does."""

        def pods() -> Iterator[Scraped]:
            with self._cluster.lock:
                owner = self._cluster.store.find("jobs", job, namespace)
                stored = [stored.raw for stored in self._cluster.store.all("pods")]
            ranks = [
                raw["metadata"]
                for raw in stored
                if raw["metadata"]["namespace"] == namespace
                and objects.controller(raw) == ("Job", job)
                and (raw.get("status") or {}).get("phase") == "Running"
            ]
            if owner is not None and ranks:
                start = datetime.fromisoformat(owner.raw["metadata"]["creationTimestamp"]).timestamp()
                first = min(ranks, key=lambda metadata: str(metadata["name"]))
                yield Scraped(_pod_target(first, namespace, "trainer"), partial(training, start=start, load=load))

        self.scraped.append(pods)

    def serves(self, namespace: str, app: str, load: ServingLoad) -> None:
        """Scrape vLLM in each running pod with this label `app`, as a PodMonitor does."""

        def pods() -> Iterator[Scraped]:
            with self._cluster.lock:
                stored = [stored.raw for stored in self._cluster.store.all("pods")]
            for raw in stored:
                metadata, status = raw["metadata"], raw.get("status") or {}
                of_app = metadata["namespace"] == namespace and (metadata.get("labels") or {}).get("app") == app
                if of_app and status.get("phase") == "Running":
                    start = datetime.fromisoformat(str(status.get("startTime") or metadata["creationTimestamp"]))
                    yield Scraped(
                        _pod_target(metadata, namespace, "vllm"), partial(serving, start=start.timestamp(), load=load)
                    )

        self.scraped.append(pods)

    def _kubelets(self) -> Iterator[Scraped]:
        for node in self._hosts():
            instance = self.target(node)["instance"].replace(":9100", ":10250")
            labels = {"instance": instance, "job": "kubelet", "metrics_path": "/metrics", "node": node}
            yield Scraped(labels, partial(self._of_kubelet, node))

    def _of_kubelet(self, node: str, at: float) -> Iterator[Sample]:
        yield "kubelet_node_name", {"node": node}, 1.0
        for signal, times in self.evicted.get(node, {}).items():
            if count := sum(time <= at for time in times):  # a counter appears with its first eviction
                yield "kubelet_evictions", {"eviction_signal": signal}, float(count)

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


def _pod_target(metadata: Raw, namespace: str, container: str) -> Labels:
    number = int(hashlib.sha256(metadata["uid"].encode()).hexdigest()[:4], 16)
    return {
        "container": container,
        "endpoint": "http",
        "instance": f"10.1.{number >> 8}.{number & 255}:8000",
        "job": f"{namespace}/{container}",
        "namespace": namespace,
        "pod": metadata["name"],
    }


def _operation(text: str) -> tuple[str, str, str] | None:
    """Return both sides of the last `>=`, else of the last `/`, outside of parentheses and quotes."""
    depth, is_quoted, places = 0, False, {}
    for place, character in enumerate(text):
        is_quoted ^= character == '"'
        depth += 0 if is_quoted else (character in "({[") - (character in ")}]")
        for operator in (">=", "/"):
            if not depth and not is_quoted and text.startswith(f" {operator} ", place):
                places[operator] = place
    for operator in (">=", "/"):
        if operator in places:
            left, right = text[: places[operator]], text[places[operator] + len(operator) + 2 :]
            return left.strip(), operator, right.strip()
    return None


def _aggregate(name: str, values: list[float]) -> float:
    if name == "avg":
        return sum(values) / len(values)
    if name == "min":
        return min(values)
    return max(values) if name == "max" else sum(values) if name == "sum" else float(len(values))


def _is_match(value: str, how: str, wanted: Any) -> bool:
    if "~" in how:
        return bool(wanted.fullmatch(value)) == (how == "=~")
    return bool(value == wanted) == (how == "=")


def _success(kind: str, rows: list[dict[str, Any]]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": rows}})
