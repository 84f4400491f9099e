"""Slow disks and I/O pressure of hosts: read from a Prometheus, reported for GPU nodes, never closed by silence."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from clusters.fleet import Reply
from clusters.models import Cluster, Node
from common.clock import now
from gpus.alerts import host_loads as rules
from gpus.models import HostLoad, TelemetrySource
from gpus.services import host_loads
from gpus.telemetry import factory
from gpus.telemetry.expressions import Expressions
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db
DISK, IO = (rule for rule in rules.rules())


class Prom:
    """Answers of a Prometheus: one target a node, each with its slowest disk and its pressure."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.reads: dict[str, float] = {}
        self.writes: dict[str, float] = {}
        self.waits: dict[str, float] = {}
        self.reporting = {"n1", "n2", "no-gpus"}
        self.status, self.queries = 200, 0
        monkeypatch.setattr(factory, "expressions", self.expressions)
        self.row = HostLoad.objects.create(cluster=cluster)

    def expressions(self, _source: TelemetrySource, *, seconds: float) -> Expressions:
        return Expressions(self.ask, "Prometheus", "", 1e12)

    def ask(self, _path: str, query: Any, _limit: int, _seconds: float) -> Reply:
        self.queries += 1
        text, rows = query["query"], []
        if text.startswith("count by"):
            rows = [({"nodename": name}, 1.0, name) for name in self.reporting if f"{name}:9100" in text]
        elif text.startswith("count("):
            rows = [({}, float(len(self.reporting)), "")] if self.reporting else []
        elif text.startswith("max"):
            rows = [({}, 0.0, name) for name in self.reporting]
        else:
            kinds = (("disk_read", self.reads), ("disk_write", self.writes), ("pressure", self.waits))
            values = next(values for kind, values in kinds if kind in text)
            rows = [({"device": "nvme0n1"}, value, name) for name, value in values.items() if name in self.reporting]
        result = [
            {"metric": {"instance": f"{name}:9100", "job": "node"} | labels, "value": [0, repr(value)]}
            for labels, value, name in rows
        ]
        return Reply(self.status, json.dumps({"status": "success", "data": {"result": result}}).encode())

    def look(self) -> None:
        HostLoad.objects.filter(pk=self.row.pk).update(due_at=now())
        assert host_loads.refresh(self.row.pk)

    def result(self, rule: Any = DISK, threshold: float | None = None) -> Any:
        return rule.look(self.cluster.pk, rule.threshold.default if threshold is None else threshold)

    def names(self, rule: Any = DISK, threshold: float | None = None) -> list[str]:
        return [condition.name for condition in self.result(rule, threshold).conditions]


@pytest.fixture
def prom(monkeypatch, clock) -> Prom:
    cluster = ClusterFactory()
    TelemetrySource.objects.create(cluster=cluster)
    for name, gpus in (("n1", 8), ("n2", 8), ("no-gpus", 0)):
        Node.objects.create(cluster=cluster, uid=f"uid-{name}", name=name, gpu_count=gpus, is_ready=True)
    return Prom(cluster, monkeypatch)


def test_a_slow_disk_of_a_node_with_gpus_is_reported_with_its_disk_and_ends_when_it_is_fast(prom):
    prom.reads, prom.writes = {"n1": 0.15, "no-gpus": 0.9, "n2": 0.03}, {"n1": 0.25}
    prom.look()
    (condition,) = prom.result().conditions
    assert (condition.subject, condition.node) == ("uid-n1", Node.objects.get(name="n1").pk)
    assert condition.sentence == "A write takes 250 ms on the average on its disk nvme0n1."
    assert condition.figures == {"milliseconds": 250.0, "disk": "nvme0n1", "operation": "write"}
    assert prom.names(IO) == []
    prom.reads, prom.writes = {}, {}
    prom.look()
    assert (prom.names(), prom.result().unknown) == ([], frozenset())


def test_pressure_is_a_rule_of_its_own_with_its_own_number(prom):
    prom.waits = {"n1": 0.3, "n2": 0.12}
    prom.look()
    assert (prom.names(IO), prom.names(IO, 20), prom.names(DISK)) == (["n1", "n2"], ["n1"], [])


@pytest.mark.parametrize("rule", [DISK, IO], ids=["disk", "pressure"])
def test_no_limit_that_can_be_set_is_below_what_is_read(prom, rule):
    """Prometheus leaves out what is below the floor: a limit below it would never fire."""
    prom.reads, prom.waits = {"n1": host_loads.FLOORS["latency"]}, {"n1": host_loads.FLOORS["pressure"]}
    prom.look()
    assert prom.names(rule, rule.threshold.least) == ["n1"]


def test_a_node_that_reports_nothing_any_more_is_unknown_until_it_does(prom):
    prom.reads = {"n1": 0.5}
    prom.look()
    prom.reporting = {"n2"}
    for _ in range(3):
        prom.look()
        result = prom.result()
        assert (list(result.conditions), result.unknown) == ([], {"uid-n1"})
    prom.reads, prom.reporting = {}, {"n1", "n2"}
    prom.look()
    assert prom.result().unknown == frozenset()


def test_a_prometheus_that_does_not_answer_makes_the_rule_blind_after_some_minutes(prom, clock):
    prom.reads = {"n1": 0.5}
    prom.look()
    prom.status = 503
    clock.forward(minutes=1)
    prom.look()
    assert prom.names() == ["n1"], "the last reading is a minute old"
    clock.forward(minutes=3)
    prom.look()
    assert "Prometheus" in prom.result().blind


def test_without_a_prometheus_or_without_the_metric_nothing_is_judged_and_it_is_said_why(prom, monkeypatch):
    prom.reporting = set()
    prom.look()
    result = prom.result()
    assert (result.is_unjudged, "node_disk_reads_completed_total" in result.not_judged) == (True, True)
    TelemetrySource.objects.update(is_enabled=False)
    prom.look()
    assert "switched off" in prom.result().not_judged
    HostLoad.objects.all().delete()
    assert prom.result().blind


def test_two_targets_of_one_name_are_not_taken_for_the_node(prom, monkeypatch):
    prom.reads = {"n1": 0.5}
    Node.objects.create(
        cluster=prom.cluster, uid="u", name="other", gpu_count=8, labels={"kubernetes.io/hostname": "x"}
    )
    ask = prom.ask

    def twice(path: str, query: Any, limit: int, seconds: float) -> Reply:
        answer = ask(path, query, limit, seconds)
        if not query["query"].startswith("count by"):
            return answer
        body = json.loads(answer.body)
        body["data"]["result"].append(
            {"metric": {"instance": "n1:9100", "job": "node", "node": "other"}, "value": [0, "1"]}
        )
        return Reply(200, json.dumps(body).encode())

    monkeypatch.setattr(prom, "ask", twice)
    prom.look()
    assert prom.names() == []


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "0.001"])
def test_values_that_cannot_be_or_are_low_are_left_out(prom, monkeypatch, value):
    def ask(_path: str, query: Any, _limit: int, _seconds: float) -> Reply:
        metric = {"instance": "n1:9100", "job": "node", "nodename": "n1"}
        counted = "3" if query["query"].startswith("count") else value
        result = [{"metric": metric, "value": [0, counted]}]
        return Reply(200, json.dumps({"status": "success", "data": {"result": result}}).encode())

    monkeypatch.setattr(prom, "ask", ask)
    prom.look()
    assert (prom.names(), prom.names(IO)) == ([], [])


def test_of_two_workers_one_reads_and_each_cluster_has_a_row(prom, clock):
    assert host_loads.refresh(prom.row.pk)
    queries = prom.queries
    assert not host_loads.refresh(prom.row.pk)
    assert prom.queries == queries
    other = ClusterFactory()
    host_loads.reconcile()
    assert host_loads.due() == [HostLoad.objects.get(cluster=other).pk]
    clock.forward(seconds=61)
    assert len(host_loads.due()) == 2


def test_what_is_read_and_judged_costs_the_same_for_many_nodes(prom, django_assert_num_queries, clock):
    names = [f"m{number}" for number in range(150)]
    Node.objects.bulk_create(Node(cluster=prom.cluster, uid=name, name=name, gpu_count=8) for name in names)
    prom.reporting = set(names)
    prom.reads = dict.fromkeys(names, 0.5)
    with django_assert_num_queries(5):
        assert host_loads.refresh(prom.row.pk)
    assert prom.queries <= 8
    with django_assert_num_queries(2):
        assert len(prom.names()) == 150
    assert HostLoad.objects.get().read_at > now() - timedelta(minutes=1)
