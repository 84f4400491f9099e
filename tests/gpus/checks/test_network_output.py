"""Parser of the network's check: no output that is forged, cut off or of another shape is ever a pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpus.services.checks.parsers import network
from gpus.services.checks.verdicts import NotUnderstood
from tests.gpus.checks import outputs
from tests.gpus.checks.outputs import API, OWN_NAME, probe


def with_probes(*probes: Any) -> str:
    return json.dumps(json.loads(outputs.network()) | {"probes": list(probes)})


OWN, TCP, HTTPS = probe("dns", OWN_NAME, "10.96.0.10"), probe("tcp", API), probe("https", API)


ROOTS: list[dict[str, Any]] = [
    {"setpoint_network": 2}, {"setpoint_network": True}, {"is_complete": 1}, {"is_complete": False}, {"python": "3"},
    {"extra": 1}, {"probes": {}}, {"probes": []},
]  # fmt: skip
DNS: list[dict[str, Any]] = [
    {"answered": 9}, {"answered": 11}, {"answered": 0}, {"answered": True}, {"answered": "10"},
    {"failures": {"silent": 0}}, {"failures": {"fine": 1}, "answered": 9}, {"failures": []}, {"p50_ms": -1},
    {"p50_ms": None}, {"p50_ms": 3}, {"max_ms": 1e9}, {"max_ms": True}, {"target": "kubernetes.default.svc.\x1b[31m"},
    {"target": "other.name"}, {"server": "<b>"}, {"kind": "icmp"}, {"kind": []}, {"more": 1}, {"received": 1 << 40},
]  # fmt: skip
PROBES: list[list[Any]] = [
    [OWN, TCP, HTTPS, OWN], [OWN, TCP, HTTPS, "x"], [OWN, TCP], [OWN, HTTPS], [TCP, HTTPS],
    [OWN, TCP, HTTPS, *(probe("tcp", f"10.0.0.1:{port}") for port in range(1, 70))],
    [OWN, TCP, HTTPS, probe("tcp", "10.0.0.1:1", "10.96.0.10")],
    [OWN, TCP, HTTPS, probe("dns", "a.example", "10.96.0.11")],
]  # fmt: skip
FORGED = [
    *(outputs.network(**root) for root in ROOTS),
    *(outputs.network(dns=changed) for changed in DNS),
    *(with_probes(*probes) for probes in PROBES),
    outputs.network() + " " * network.LONGEST,
]


def test_the_probes_that_are_changed_below_pass_as_they_are():
    assert network.parse(with_probes(OWN, TCP, HTTPS)).is_passed


@pytest.mark.parametrize("text", FORGED, ids=range(len(FORGED)))
def test_what_the_program_cannot_have_printed_is_no_result(text):
    with pytest.raises(NotUnderstood):
        network.parse(text)


def test_a_failure_names_its_target_and_the_measures_count_it():
    lost = {"answered": 9, "failures": {"silent": 1}}
    closed = probe("tcp", "10.1.2.3:2049", answered=0, failures={"refused": 3}, p50_ms=None, max_ms=None)
    verdict = network.parse(outputs.network(closed, dns=lost))
    assert verdict.summary == f"1 of 10 queries for {OWN_NAME} at 10.96.0.10: no answer, and 1 more"
    assert verdict.notes[1].startswith("3 of 3 connections to 10.1.2.3:2049: refused")
    assert verdict.measures == {
        "failed": 4, "dns_median": 0.4, "dns_slowest": 2.5, "connect_median": 0.4, "connect_slowest": 2.5,
        "exchange_median": 0.4,
    }  # fmt: skip
    assert verdict.covers == {OWN_NAME, API, "10.1.2.3:2049"}


def test_notes_of_many_failures_are_bounded():
    lost = {"answered": 0, "failures": {"silent": 3}, "p50_ms": None, "max_ms": None}
    names = ["x" * 63 + f".n{number}.example" for number in range(40)]
    verdict = network.parse(outputs.network(*[probe("dns", name, "10.96.0.10", **lost) for name in names]))
    assert len(verdict.notes) == 20
    assert all(len(line) <= 300 for line in verdict.notes)
