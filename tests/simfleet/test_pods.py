"""Evictions, budgets, owners and placement."""

from __future__ import annotations

import pytest

from clusters import objects
from clusters.fleet import PodRef


def ref(raw):
    return PodRef(raw["metadata"]["namespace"], raw["metadata"]["name"], raw["metadata"]["uid"])


def pods_of(bench, name, namespace="default"):
    return [p for p in bench.fleet.pods() if p["metadata"]["labels"].get("app") == name]


def nodes_of(bench, name):
    return sorted(p["spec"].get("nodeName", "") for p in pods_of(bench, name))


def evict(bench, pod, **options):
    return bench.fleet.evict(ref(pod), **options)


def test_an_evicted_pod_ends_within_its_grace_and_no_sooner_than_it_stops(bench):
    pod = bench.sim.add_pod("slow", node="n1", grace=30, stop_seconds=12).raw
    assert evict(bench, pod).outcome == "evicted"
    bench.sim.tick(11)
    assert pods_of(bench, "slow")[0]["metadata"]["deletionTimestamp"]
    bench.sim.tick(2)
    assert pods_of(bench, "slow") == []


def test_a_pod_that_ignores_its_end_is_killed_when_the_grace_is_over(bench):
    pod = bench.sim.add_pod("deaf", node="n1", grace=20, stop_seconds=9999).raw
    evict(bench, pod)
    bench.sim.tick(19)
    assert pods_of(bench, "deaf")
    bench.sim.tick(2)
    assert pods_of(bench, "deaf") == []


def test_a_pod_on_a_silent_node_stays_terminating_until_its_kubelet_is_back(bench):
    pod = bench.sim.add_pod("stuck", node="n1").raw
    bench.sim.nodes.set_ready("n1", is_ready=False)
    evict(bench, pod)
    bench.sim.tick(120)
    assert [p["metadata"].get("deletionTimestamp") for p in pods_of(bench, "stuck")] != [None]
    bench.sim.nodes.set_ready("n1", is_ready=True)
    assert pods_of(bench, "stuck") == []


def test_pods_of_a_node_that_is_lost_are_deleted_after_five_minutes(bench):
    bench.sim.add_pod("left", node="n1")
    bench.sim.nodes.set_ready("n1", is_ready=False)
    bench.sim.tick(299)
    assert "deletionTimestamp" not in pods_of(bench, "left")[0]["metadata"]
    bench.sim.tick(2)
    assert "deletionTimestamp" in pods_of(bench, "left")[0]["metadata"]


def test_a_job_pod_comes_back_on_another_node_and_not_on_a_cordoned_one(bench):
    bench.sim.pods.workload("Job", "llm", gpus=8, nodes=["n1"])
    bench.sim.nodes.cordon("n1")
    [pod] = pods_of(bench, "llm")
    evict(bench, pod)
    bench.sim.tick(10)
    [again] = pods_of(bench, "llm")
    assert (again["spec"]["nodeName"], again["status"]["phase"]) == ("n2", "Running")
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]


def test_a_pod_waits_for_gpus_and_starts_when_a_node_is_given_back(bench):
    bench.sim.pods.workload("Job", "one", gpus=8, nodes=["n1"])
    bench.sim.pods.workload("Job", "two", gpus=8, nodes=["n2"])
    bench.sim.nodes.cordon("n1")
    evict(bench, pods_of(bench, "one")[0])
    bench.sim.tick(20)
    [waits] = pods_of(bench, "one")
    assert (waits["status"]["phase"], waits["spec"].get("nodeName")) == ("Pending", None)
    bench.sim.nodes.cordon("n1", is_cordoned=False)
    bench.sim.tick(5)
    assert nodes_of(bench, "one") == ["n1"]


def test_a_daemon_pod_returns_to_its_cordoned_node(bench):
    bench.sim.nodes.cordon("n1")
    [pod] = [p for p in bench.fleet.pods_on("n1") if objects.is_daemon(p)]
    evict(bench, pod)
    bench.sim.tick(10)
    [again] = [p for p in bench.fleet.pods_on("n1") if objects.is_daemon(p)]
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    assert again["status"]["phase"] == "Running"
    assert bench.fleet.equipment().agent_ready == 2


def test_a_stateful_pod_keeps_its_name_and_a_mirror_pod_its_place(bench):
    bench.sim.pods.workload("StatefulSet", "db", nodes=["n1"])
    mirror = bench.sim.add_pod("etcd-n1", node="n1", mirror=True).raw
    for pod in (*pods_of(bench, "db"), mirror):
        evict(bench, pod)
    bench.sim.tick(10)
    assert [p["metadata"]["name"] for p in pods_of(bench, "db")] == ["db-0"]
    assert nodes_of(bench, "etcd-n1") == ["n1"]


def test_a_bare_pod_does_not_come_back(bench):
    evict(bench, bench.sim.add_pod("notebook", node="n1").raw)
    bench.sim.tick(60)
    assert pods_of(bench, "notebook") == []


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 4}, 0),
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": "51%"}, 1),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "30%"}, 2),
        ({"maxUnavailable": 0}, 0),
    ],
)
def test_a_budget_counts_as_the_disruption_controller_does(bench, spec, allowed):
    bench.sim.pods.workload("ReplicaSet", "web", replicas=4, nodes=["n1", "n2"])
    bench.sim.pods.budget("web", labels={"app": "web"}, **spec)
    [budget] = bench.fleet.budgets()
    assert budget["status"]["disruptionsAllowed"] == allowed
    outcomes = [evict(bench, pod).outcome for pod in pods_of(bench, "web")]
    assert outcomes == ["evicted"] * allowed + ["blocked"] * (4 - allowed)


def test_evictions_go_on_when_the_replacement_is_ready(bench):
    bench.sim.pods.workload("ReplicaSet", "web", replicas=2, nodes=["n1"])
    bench.sim.pods.budget("web", labels={"app": "web"}, minAvailable=1)
    bench.sim.nodes.cordon("n1")
    first, second = pods_of(bench, "web")
    assert evict(bench, first).outcome == "evicted"
    blocked = evict(bench, second)
    assert (blocked.outcome, blocked.budget) == ("blocked", "default/web")
    bench.sim.tick(10)
    assert evict(bench, second).outcome == "evicted"
    bench.sim.tick(10)
    assert nodes_of(bench, "web") == ["n2", "n2"]


def test_max_unavailable_over_a_job_allows_nothing(bench):
    bench.sim.pods.workload("Job", "llm", replicas=2, nodes=["n1", "n2"])
    bench.sim.pods.budget("llm", labels={"app": "llm"}, maxUnavailable=1)
    [budget] = bench.fleet.budgets()
    assert budget["status"]["disruptionsAllowed"] == 0
    assert budget["status"]["conditions"][0]["reason"] == "SyncFailed"


def test_unready_pods_of_a_healthy_budget_may_go(bench):
    bench.sim.pods.workload("ReplicaSet", "web", replicas=3, nodes=["n1", "n1", "n2"])
    bench.sim.pods.budget("web", labels={"app": "web"}, minAvailable=2)
    bench.sim.nodes.set_ready("n2", is_ready=False)
    [sick] = [p for p in pods_of(bench, "web") if p["spec"]["nodeName"] == "n2"]
    well = next(p for p in pods_of(bench, "web") if p["spec"]["nodeName"] == "n1")
    assert evict(bench, well).outcome == "blocked"
    assert evict(bench, sick).outcome == "evicted"


def test_a_reboot_fails_job_pods_and_keeps_those_that_restart(bench):
    bench.sim.pods.workload("Job", "llm", gpus=4, nodes=["n1"])
    bench.sim.pods.workload("ReplicaSet", "web", nodes=["n1"])
    bench.sim.nodes.reboot("n1")
    bench.sim.tick(10)
    assert sorted(p["status"]["phase"] for p in pods_of(bench, "llm")) == ["Failed", "Running"]
    [web] = pods_of(bench, "web")
    assert objects.condition(web, "Ready") == "False"
    bench.sim.tick(300)
    [web] = pods_of(bench, "web")
    assert (web["spec"]["nodeName"], objects.condition(web, "Ready")) == ("n1", "True")


def test_no_two_pods_of_thousands_have_one_name(bench, monkeypatch):
    """Five letters of two are 32 names: drawn at random, thirty of them would have met long before."""
    monkeypatch.setattr("simfleet.controllers.pods._ALPHABET", "ab")
    bench.sim.pods.workload("ReplicaSet", "web", replicas=30, nodes=["n1"])
    assert len({pod["metadata"]["name"] for pod in pods_of(bench, "web")}) == 30
