"""The ready-made clusters are what they say, and large ones are affordable."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from clusters import objects
from clusters.fleet import PodRef
from contract.nodetuning import Spec, Wanted
from simfleet import SimClock, SimCluster, SimFleet
from simfleet.fleets import NO_EXPORTER, RACK_LABEL, more_gpu_nodes, training_cluster


def test_a_training_cluster_has_its_nodes_racks_and_teams():
    sim = training_cluster("atlas", nodes=48, gpus=8)
    fleet = SimFleet(sim)
    nodes = fleet.list("nodes").items
    gpu_nodes = [n for n in nodes if objects.gpu_count(n["status"]["capacity"])]
    assert (len(nodes), len(gpu_nodes)) == (51, 48)
    assert sum(objects.is_control_plane(n) for n in nodes) == 3
    assert all(objects.is_ready(n) and not objects.is_cordoned(n) for n in nodes)
    assert set(Counter(n["metadata"]["labels"][RACK_LABEL] for n in gpu_nodes).values()) == {8}
    pods = fleet.pods()
    assert {p["status"]["phase"] for p in pods} == {"Running"}
    held = sum(objects.pod_gpus(p) for p in pods)
    assert 0.4 < held / 384 < 0.8
    assert {b["metadata"]["name"]: b["status"]["disruptionsAllowed"] for b in fleet.budgets()} == {
        "chat": 1,
        "vector-db": 0,
    }
    assert any(objects.controller(p) == ("", "") and not objects.is_mirror(p) for p in pods)


def test_a_node_of_a_busy_cluster_can_be_drained_but_for_what_a_budget_holds():
    sim = training_cluster("atlas", nodes=12, gpus=8)
    fleet = SimFleet(sim)
    outcomes = Counter()
    for node in [f"atlas-gpu-{n:03d}" for n in range(1, 13)]:
        for pod in (p for p in fleet.pods_on(node) if not objects.stays(p)):
            meta = pod["metadata"]
            answer = fleet.evict(PodRef(meta["namespace"], meta["name"], meta["uid"]))
            outcomes[answer.outcome, answer.budget] += 1
    assert outcomes["blocked", "team-serving/vector-db"] == 3
    assert outcomes["evicted", ""] > 8


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("nodes", [4, 12])
def test_no_node_holds_more_gpus_than_it_has(nodes: int, gpus: int):
    held = Counter[str]()
    for pod in SimFleet(training_cluster("atlas", nodes=nodes, gpus=gpus)).pods():
        held[pod["spec"]["nodeName"]] += objects.pod_gpus(pod)
    assert max(held.values()) == gpus


def test_nodes_that_join_are_watched_but_one_and_its_label_says_why():
    sim = training_cluster("atlas", nodes=8, control_planes=0)
    more_gpu_nodes(sim, "atlas", first=9, count=20, gpus=8, pool="new")
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in SimFleet(sim).list("nodes").items}
    unwatched = {name for name in nodes if not sim.exporters.answers_on(name)} - sim.exporters.silent
    assert unwatched == {name for name, labels in nodes.items() if NO_EXPORTER.items() <= labels.items()}
    assert unwatched == {"atlas-gpu-028"}
    held = Counter(p["spec"]["nodeName"] for p in SimFleet(sim).pods() if objects.pod_gpus(p) == 8)
    assert sum(held[f"atlas-gpu-{number:03d}"] for number in range(9, 29)) == 13


def test_two_builds_of_a_cluster_are_the_same():
    cluster, other = (training_cluster("atlas", nodes=9, gpus=4, seed=3) for _ in range(2))
    for plural in ("nodes", "pods", "jobs"):
        assert cluster.objects(plural) == other.objects(plural)


def test_a_padded_node_is_as_big_as_a_busy_one():
    sim = SimCluster(clock=SimClock())
    stored = sim.add_node("n1", gpus=8, pad=22_000)
    assert 22_000 < len(stored.encoded()) < 30_000


def test_hundreds_of_nodes_are_tuned_in_one_tick_of_a_few_seconds():
    sim = SimCluster(clock=SimClock())
    for number in range(300):
        sim.add_node(f"n{number}", gpus=8)
    fleet = SimFleet(sim)
    wanted = (Wanted("vm.swappiness", "=", "10", "60"), Wanted("vm.max_map_count", ">=", "262144", "65530"))
    began = time.perf_counter()
    for node in fleet.list("nodes").items:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        fleet.observe(name, uid, Spec(uid))
        fleet.tune(name, Spec(uid, mode="apply", settings=wanted))
    sim.tick(5)
    assert time.perf_counter() - began < 20  # about 0.4 s alone on a quiet machine
    states = Counter(s["state"] for t in fleet.list("nodetunings").items for s in t["status"]["settings"])
    assert states == {"Effective": 600}
    assert fleet.calls["patch", "nodetunings"] == 300
