"""Nodes are matched to targets in the forms that installations have, and to none that may be another's."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest

from clusters.fleet import FleetUnavailable, Reply
from gpus.reports.hosts import samples, targets
from gpus.reports.hosts.figures import HostFigures
from gpus.reports.hosts.queries import HOST, SIDE_BY_SIDE
from gpus.reports.hosts.targets import HostName, Target
from gpus.telemetry.expressions import Expressions, Span, Unanswered

AT = datetime(2026, 1, 1, tzinfo=UTC)
NODE = HostName("gpu-1.eu.example", "gpu-1")


def matched(*rows: dict[str, str], host: HostName = NODE):
    def ask(_path, _query, _limit, _seconds):
        result = [{"metric": row, "value": [0, "1"]} for row in rows]
        return Reply(200, json.dumps({"status": "success", "data": {"result": result}}).encode())

    result = targets.match(Expressions(ask, "Prometheus", "", time.monotonic() + 60), [host], AT)
    return result.targets.get(host.name) or result.why[host.name]


@pytest.mark.parametrize(
    ("row", "by"),
    [
        ({"instance": "10.0.0.1:9100", "nodename": "gpu-1.eu.example"}, "nodename"),
        ({"instance": "10.0.0.1:9100", "nodename": "GPU-1"}, "nodename"),
        ({"instance": "10.0.0.1:9100", "nodename": "ip-9", "node": "gpu-1.eu.example"}, "node"),
        ({"instance": "10.0.0.1:9100", "nodename": "ip-9", "kubernetes_node": "gpu-1.eu.example"}, "kubernetes_node"),
        ({"instance": "10.0.0.1:9100", "nodename": "x", "exported_nodename": "gpu-1"}, "exported_nodename"),
        ({"instance": "gpu-1.eu.example:9100", "nodename": "localhost"}, "instance"),
        ({"instance": "gpu-1.eu.example", "nodename": "localhost"}, "instance"),
    ],
)
def test_each_form_is_known(row, by):
    assert matched({"job": "node-exporter"} | row) == Target(row["instance"], "node-exporter", by)


@pytest.mark.parametrize(
    "row",
    [
        {"instance": "10.0.0.1:9100", "nodename": "gpu-10.eu.example"},
        {"instance": "10.0.0.1:9100", "nodename": "gpu-1.us.example"},
        {"instance": "10.0.0.1:9100", "nodename": "gpu-1", "node": "gpu-2"},
        {"instance": "gpu-1:9100:x", "nodename": "other"},
        {"nodename": "gpu-1"},
        {},
    ],
)
def test_another_hosts_target_is_not_taken(row):
    assert str(matched(row)).startswith("No target of the node exporter is gpu-1.eu.example")


def test_the_better_label_wins_and_two_hosts_of_one_name_are_none():
    named = {"job": "a", "nodename": "gpu-1"}
    assert matched(named | {"instance": "10.0.0.1:9100"}, named | {"instance": "10.0.0.1:9101"}).instance.endswith(
        "9100"
    )
    by_label = {"job": "b", "instance": "10.0.0.9:9100", "node": "gpu-1"}
    assert matched(named | {"instance": "10.0.0.1:9100"}, by_label).job == "b"
    why = matched(named | {"instance": "10.0.0.1:9100"}, named | {"instance": "10.7.0.1:9100"})
    assert "2 targets" in why
    assert "label matchers" in why


def test_addresses_of_queries_stay_short_and_a_name_cannot_leave_its_quotes():
    queries = []

    def ask(_path, query, _limit, _seconds):
        queries.append(query)
        return Reply(200, b'{"data":{"result":[]}}')

    expressions = Expressions(ask, "Prometheus", 'cluster="a"', time.monotonic() + 60)
    names = [HostName(f"ip-10-0-{number}-200.eu-central-1.compute.internal") for number in range(40)]
    targets.match(expressions, [*names, HostName('x"} or vector(1) or {a="')], AT)
    assert len(queries) == 6
    assert max(len(urlencode(query)) for query in queries) < 8000
    for query in queries:
        assert "vector(1)" not in query["query"]
        assert query["query"].count('cluster="a"') == len(re.findall(r"node_uname_info\{", query["query"]))


def test_every_query_names_its_figure_once_and_carries_the_sources_matchers():
    assert len({query.name for query in HOST}) == len(HOST)
    assert {query.name for query in SIDE_BY_SIDE} < {query.name for query in HOST}
    for query in HOST:
        text = query.text(['instance=~"a"', 'cluster="a"'], 300)
        assert text.count('cluster="a"') == 1
        assert text.startswith(("max by (instance, job", "sum by (instance, job"))


def test_one_deadline_bounds_all_queries_and_what_was_not_answered_says_so():
    """A Prometheus that answers the first query only: the rest is not waited for one by one."""
    calls = []

    def ask(_path, query, _limit, seconds):
        calls.append(seconds)
        if "node_cpu_seconds_total" in query["query"]:
            row = {"metric": {"instance": "a:1", "job": "j", "mode": "idle"}, "value": [AT.timestamp(), "0.5"]}
            return Reply(200, json.dumps({"data": {"result": [row]}, "warnings": ["a store is away"]}).encode())
        raise FleetUnavailable("it timed out")

    expressions = Expressions(ask, "Prometheus", "", time.monotonic() + 3)
    target = Target("a:1", "j", "node")
    reading = samples.read(expressions, [target], HOST, Span(AT, 300, 1))[target]
    assert max(calls) <= 3
    assert set(reading.lacks) == {query.name for query in HOST} - {"cpu"}
    assert expressions.warnings == ["Prometheus warns: a store is away"]
    figures = HostFigures(reading).figures
    assert (figures["cpu_busy"].mean, figures["cpu_busy"].lack) == (0.0, "")
    assert "timed out" in figures["pressure_io"].lack
    calls.clear()
    late = Expressions(ask, "Prometheus", "", time.monotonic() - 1)
    with pytest.raises(Unanswered, match="time for reading was over"):
        samples.read(late, [target], HOST, Span(AT, 300, 1))
    assert calls == []
