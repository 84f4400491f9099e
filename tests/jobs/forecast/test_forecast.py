"""Laws of batches, time and cost: arithmetic that an approver relies on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.diffs.changes import Disruption
from jobs.forecast.schedule import SECONDS_EACH, Candidate, arrange_batches, seconds_of, summarize
from jobs.forecast.strategy import Strategy

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pod(
    namespace: str = "ml", owner: str = "train", gpus: int = 1, *, name: str = "p", hours: float = 1
) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "name": name,
        "gpus": gpus,
        "owner_kind": "Job" if owner else "",
        "owner_name": owner,
        "started_at": AT - timedelta(hours=hours),
    }


def node(name: str, worst: Disruption = Disruption.LIVE, *pods: dict[str, Any], **fields: Any) -> Candidate:
    wanted = {"node_id": 0, "name": name, "worst": worst, "is_control_plane": False, "gpus": 8, "gpu_pods": pods}
    return Candidate(**(wanted | fields))


def summary(nodes: list[Candidate], strategy: Strategy | None = None, budget: int = 1, **fields: int) -> dict[str, Any]:
    strategy = strategy or Strategy()
    wanted = {"evicted": 0, "values": 0} | fields
    return summarize(arrange_batches(nodes, strategy), strategy, budget=budget, at=AT, **wanted)


def names(batches: list[list[Candidate]]) -> list[list[str]]:
    return [[c.name for c in batch] for batch in batches]


@st.composite
def fleets(draw: st.DrawFn) -> list[Candidate]:
    kinds = st.tuples(st.sampled_from(Disruption), st.booleans(), st.integers(0, 8), st.integers(0, 3))
    return [
        node(f"n{i}", worst, *(pod(gpus=1, name=f"p{j}") for j in range(pods)), is_control_plane=master, gpus=gpus)
        for i, (worst, master, gpus, pods) in enumerate(draw(st.lists(kinds, max_size=30)))
    ]


def strategies_() -> st.SearchStrategy[Strategy]:
    batch = st.integers(1, 100).map("{}%".format) | st.integers(1, 40).map(str)
    return st.builds(
        Strategy,
        canary=st.integers(0, 40),
        batch=batch,
        order=st.sampled_from(["name", "idle-first"]),
        max_in_flight=st.integers(1, 9),
        soak_seconds=st.integers(0, 60),
    )


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(fleets(), strategies_())
def test_batches_hold_every_node_once_and_none_is_empty(fleet, strategy):
    batches = arrange_batches(fleet, strategy)

    assert Counter(c.name for batch in batches for c in batch) == Counter(c.name for c in fleet)
    assert all(batches)
    flat = [c for batch in batches for c in batch]
    assert [c.position for c in flat] == list(range(len(fleet)))
    assert [[c.batch for c in batch] for batch in batches] == [[i] * len(b) for i, b in enumerate(batches, 1)]


@given(fleets(), strategies_())
def test_control_plane_nodes_come_last_and_one_at_a_time(fleet, strategy):
    batches = arrange_batches(fleet, strategy)
    masters = [c for c in fleet if c.is_control_plane]

    tail = batches[len(batches) - len(masters) :]
    assert all(len(batch) == 1 and batch[0].is_control_plane for batch in tail)
    assert not any(c.is_control_plane for batch in batches[: len(batches) - len(masters)] for c in batch)


@given(fleets(), strategies_())
def test_no_batch_of_workers_is_larger_than_the_canary_or_the_size(fleet, strategy):
    workers = [c for c in fleet if not c.is_control_plane]
    batches = [b for b in arrange_batches(fleet, strategy) if not b[0].is_control_plane]
    size = strategy.batch_size(len(workers)) if workers else 1

    first = min(strategy.canary, len(workers)) or min(size, len(workers))
    assert len(batches[0]) == first if batches else not workers
    assert all(len(batch) == size for batch in batches[1:-1])
    assert all(len(batch) <= size for batch in batches[1:])


@given(st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=20), strategies_())
def test_batches_are_of_one_failure_domain_and_domains_come_one_after_another(domains, strategy):
    fleet = [node(f"n{i}", domain=domain) for i, domain in enumerate(domains)]
    batches = arrange_batches(fleet, replace(strategy, domain="rack"))

    assert all(len({c.domain for c in batch}) == 1 for batch in batches)
    changes = [domain for domain, _ in groupby(batch[0].domain for batch in batches)]
    assert len(changes) == len(set(domains))
    assert "" not in changes[:-1]


def test_the_canary_is_the_idlest_node_and_a_signal_goes_before_that():
    busy = node("a", Disruption.LIVE, pod(gpus=8))
    light = node("b", Disruption.LIVE, pod(gpus=2), pod(gpus=2))
    light_too = node("c", Disruption.LIVE, pod(gpus=4))
    idle = node("d")
    later = node("e", signal=1.0)

    order = names(arrange_batches([busy, light, later, light_too, idle], Strategy(canary=1, batch="2")))

    assert order == [["d"], ["c", "b"], ["a", "e"]]
    assert names(arrange_batches([busy, idle, light], Strategy(canary=1, batch="9", order="name"))) == [
        ["a"],
        ["b", "d"],
    ]


def test_a_quarter_of_eight_is_two_and_the_canary_is_one_of_the_eight():
    fleet = [node(f"n{i}") for i in range(8)]
    assert [len(b) for b in arrange_batches(fleet, Strategy(canary=1, batch="25%"))] == [1, 2, 2, 2, 1]
    assert [len(b) for b in arrange_batches(fleet[:3], Strategy(canary=0, batch="25%"))] == [1, 1, 1]


def test_no_nodes_are_no_batches():
    assert arrange_batches([], Strategy()) == []
    assert summary([])["seconds"] == 0


def test_control_plane_nodes_alone_have_no_canary():
    batches = arrange_batches([node(n, is_control_plane=True) for n in ("m2", "m1")], Strategy(canary=1, order="name"))
    assert names(batches) == [["m1"], ["m2"]]


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_class_has_an_estimate_and_a_worse_one_is_no_shorter():
    assert set(SECONDS_EACH) == set(Disruption)
    assert [SECONDS_EACH[c] for c in Disruption if c != Disruption.DRAIN] == sorted(
        SECONDS_EACH[c] for c in Disruption if c != Disruption.DRAIN
    )


@pytest.mark.parametrize(("budget", "rounds"), [(1, 5), (2, 3), (5, 1), (9, 1), (0, 5)])
def test_nodes_that_leave_service_take_rounds_of_the_budget(budget, rounds):
    batch = [node(f"n{i}", Disruption.REBOOT) for i in range(5)]
    assert seconds_of(batch, Strategy(), budget) == rounds * SECONDS_EACH[Disruption.REBOOT]


@pytest.mark.parametrize(("in_flight", "rounds"), [(1, 7), (3, 3), (300, 1)])
def test_live_nodes_take_rounds_of_max_in_flight_whatever_the_budget(in_flight, rounds):
    batch = [node(f"n{i}") for i in range(7)]
    assert seconds_of(batch, Strategy(max_in_flight=in_flight), 1) == rounds * SECONDS_EACH[Disruption.LIVE]


def test_every_batch_soaks_once():
    fleet = [node(f"n{i}") for i in range(3)]
    assert summary(fleet, Strategy(canary=0, batch="1", soak_seconds=60))["seconds"] == 3 * (60 + 2)


@given(fleets(), strategies_(), st.integers(1, 9))
def test_the_length_is_the_sum_of_its_batches(fleet, strategy, budget):
    cost = summary(fleet, strategy, budget)
    assert cost["seconds"] == sum(b["seconds"] for b in cost["batches"]) >= 0


# ── cost ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(fleets(), strategies_(), st.integers(1, 9))
def test_what_the_batches_hold_adds_up_to_the_whole(fleet, strategy, budget):
    cost = summary(fleet, strategy, budget)

    assert sum(b["nodes"] for b in cost["batches"]) == cost["nodes"] == len(fleet) == sum(cost["by_class"].values())
    assert sum(b["gpus"] for b in cost["batches"]) == sum(c.gpus for c in fleet)
    assert cost["nodes_out_at_once"] <= budget
    assert cost["gpus_out_at_once"] <= sum(c.gpus for c in fleet if c.worst.takes_slot)
    assert sum(row["pods"] for row in cost["namespaces"]) == cost["gpu_pods"]
    assert sum(row["jobs"] for row in cost["namespaces"]) == cost["gpu_jobs"]
    assert cost["reboots"] <= cost["drains"] <= cost["nodes"]


def test_gpus_out_at_once_are_those_of_the_largest_nodes_that_the_budget_lets_out():
    fleet = [node("a", Disruption.REBOOT, gpus=4), node("b", Disruption.REBOOT, gpus=8), node("c", gpus=16)]

    assert summary(fleet, budget=1)["gpus_out_at_once"] == 8
    assert summary(fleet, budget=9)["gpus_out_at_once"] == 12
    assert summary(fleet, budget=9)["nodes_out_at_once"] == 2


def test_a_job_on_two_nodes_is_one_job_and_a_bare_pod_is_one_of_its_own():
    fleet = [
        node("a", Disruption.DRAIN, pod("ml", "train", 8, name="t-0", hours=2), pod("ml", "", 1, name="bare")),
        node("b", Disruption.DRAIN, pod("ml", "train", 8, name="t-1", hours=30), pod("ops", "train", 1)),
        node("c", Disruption.KUBELET_RESTART, pod("ml", "other", 8)),
    ]

    cost = summary(fleet, Strategy(canary=0, batch="3"))

    assert (cost["gpu_jobs"], cost["gpu_pods"], cost["drains"], cost["restarts"]) == (3, 4, 2, 1)
    assert cost["batches"][0]["jobs"] == 3
    assert cost["namespaces"] == [
        {"namespace": "ml", "jobs": 2, "gpus": 17, "pods": 3, "longest": "train", "longest_seconds": 30 * 3600},
        {"namespace": "ops", "jobs": 1, "gpus": 1, "pods": 1, "longest": "train", "longest_seconds": 3600},
    ]


def test_a_pod_that_has_not_started_costs_no_time():
    waiting = pod() | {"started_at": None}
    assert summary([node("a", Disruption.DRAIN, waiting)])["namespaces"][0]["longest_seconds"] == 0


def test_live_changes_interrupt_nothing():
    cost = summary([node("a", Disruption.LIVE, pod(gpus=8)), node("b", Disruption.NEW_PODS, pod(gpus=8))])

    for name in ("gpu_jobs", "gpu_pods", "drains", "reboots", "nodes_out_at_once", "gpus_out_at_once", "gpu_hours"):
        assert not cost[name], name
    assert cost["namespaces"] == []


def test_only_canary_and_the_batch_after_it_are_frozen():
    batches = summary([node(f"n{i}") for i in range(4)], Strategy(canary=1, batch="1"))["batches"]
    assert [(b["is_canary"], b["is_frozen"]) for b in batches] == [
        (True, True), (False, True), (False, False), (False, False),
    ]  # fmt: skip
    assert not summary([node("m", is_control_plane=True)], Strategy(canary=1))["batches"][0]["is_canary"]
