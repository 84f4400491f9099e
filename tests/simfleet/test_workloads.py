"""Workloads that came through the API, in time that is frozen between ticks."""

from __future__ import annotations

import pytest

from clusters.fleet import PodRef
from simfleet import SimFleet
from simfleet.apiserver.callers import person
from simfleet.controllers.operators import is_rolled_out
from simfleet.controllers.programs import Program

ALICE = person("alice")


@pytest.fixture
def sim(make_bench):
    sim = make_bench().sim
    for number in range(1, 7):
        sim.add_node(f"n{number}", gpus=8)
    sim.tick(1)
    return sim


def _template(image="registry.example/app:1", **spec):
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": image}], **spec}}


def _make(sim, plural, image="registry.example/app:1", pod=None, **spec):
    body = {
        "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": _template(image, **(pod or {})), **spec},
    }
    sim.api.create(ALICE, plural, body, "default")


def _change(sim, plural, **spec):
    sim.api.patch(ALICE, plural, "x", {"spec": spec}, "default")


def _only_object(sim, plural):
    return sim.store.get(plural, "x", "default").raw


def _pods(sim):
    return [p.raw for p in sim.store.all("pods", "default")]


def _worst(sim, plural, count):
    """The most that were missing at once, seen after each tenth of a second, until the workload is rolled out."""
    worst = 0

    def look():
        nonlocal worst
        ready = [p for p in _pods(sim) if p["status"].get("phase") == "Running" and _is_up(p)]
        worst = max(worst, count - len(ready))
        return is_rolled_out(_only_object(sim, plural))

    assert sim.run_until(look, seconds=120, step=0.1)
    return worst


def _is_up(pod):
    ready = next(c["status"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
    return ready == "True" and "deletionTimestamp" not in pod["metadata"]


@pytest.mark.parametrize(("allowed", "most"), [(2, 2), ("50%", 3), (None, 1)])
def test_a_daemon_set_rolls_no_faster_than_it_may(sim, allowed, most):
    strategy = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": allowed}}} if allowed else {}
    _make(sim, "daemonsets", **strategy)
    sim.tick(10)
    assert is_rolled_out(_only_object(sim, "daemonsets"))
    _change(sim, "daemonsets", template=_template("registry.example/app:2"))
    assert _worst(sim, "daemonsets", 6) == most
    assert {p["spec"]["containers"][0]["image"] for p in _pods(sim)} == {"registry.example/app:2"}


def test_a_deployment_keeps_what_it_must_and_makes_no_more_than_it_may(sim):
    _make(sim, "deployments", replicas=4)
    sim.tick(10)
    most = 0

    def count(plural, change):
        nonlocal most
        most = max(most, len([p for p in _pods(sim) if "deletionTimestamp" not in p["metadata"]]))

    sim.store.listeners.append(count)
    _change(sim, "deployments", template=_template("registry.example/app:2"))
    assert _worst(sim, "deployments", 4) == 1  # a quarter, rounded down
    assert most == 5  # a quarter, rounded up
    revision = "deployment.kubernetes.io/revision"
    sets = {r["metadata"]["annotations"][revision]: r["spec"]["replicas"] for r in sim.objects("replicasets")}
    assert sets == {"1": 0, "2": 4}

    _change(sim, "deployments", template=_template())
    assert sim.run_until(lambda: is_rolled_out(_only_object(sim, "deployments")), seconds=60)
    assert len(sim.objects("replicasets")) == 2  # back to the one that was there


def test_a_bad_release_of_a_deployment_leaves_most_of_the_good_pods(sim):
    _make(sim, "deployments", replicas=4)
    sim.tick(10)
    _change(sim, "deployments", template=_template("registry.example/app:no-such-tag"))
    sim.tick(120)
    status = _only_object(sim, "deployments")["status"]
    assert (status["readyReplicas"], status["updatedReplicas"]) == (3, 2)
    assert not is_rolled_out(_only_object(sim, "deployments"))
    _change(sim, "deployments", template=_template("registry.example/app:3"))
    assert sim.run_until(lambda: is_rolled_out(_only_object(sim, "deployments")), seconds=120)


def test_a_job_that_fails_is_tried_as_often_as_its_limit_says(sim):
    _make(sim, "jobs", "registry.example/always-fails:1", {"restartPolicy": "Never"}, backoffLimit=2)
    sim.tick(60)
    status = _only_object(sim, "jobs")["status"]
    assert status["failed"] == 3
    assert [c["type"] for c in status["conditions"]] == ["FailureTarget", "Failed"]
    assert len(_pods(sim)) == 3  # they stay, for a look at why they failed


def test_a_job_counts_completions(sim):
    _make(sim, "jobs", pod={"restartPolicy": "OnFailure"}, completions=5, parallelism=2)
    assert sim.run_until(lambda: len(_pods(sim)) == 2, seconds=5, step=0.1)
    assert sim.run_until(lambda: _only_object(sim, "jobs").get("status", {}).get("succeeded") == 5, seconds=60)
    assert len(_pods(sim)) == 5


def test_an_evicted_pod_of_a_deployment_comes_up_elsewhere_and_a_budget_holds_it(sim):
    _make(sim, "deployments", replicas=2)
    sim.pods.budget("x", labels={"app": "x"}, minAvailable=2)
    sim.tick(10)
    fleet, pod = SimFleet(sim), _pods(sim)[0]
    home = pod["spec"]["nodeName"]
    sim.nodes.cordon(home)

    def evict():
        return fleet.evict(PodRef("default", pod["metadata"]["name"], pod["metadata"]["uid"])).outcome

    assert evict() == "blocked"
    _change(sim, "deployments", replicas=3)
    sim.tick(10)
    assert evict() == "evicted"
    sim.tick(10)
    assert len(_pods(sim)) == 3
    assert not [p for p in fleet.pods_on(home) if p["metadata"]["uid"] == pod["metadata"]["uid"]]


def test_a_daemon_set_follows_nodes_that_come_go_and_are_replaced(sim):
    _make(sim, "daemonsets")
    sim.tick(10)
    sim.add_node("n7")
    sim.nodes.delete("n1")
    sim.nodes.replace("n2")
    sim.nodes.cordon("n3")
    sim.nodes.reboot("n4")
    sim.tick(300)
    assert sorted(p["spec"]["nodeName"] for p in _pods(sim)) == [f"n{n}" for n in range(2, 8)]
    assert _only_object(sim, "daemonsets")["status"]["numberReady"] == 6


def test_a_kubelet_that_restarts_ends_no_container_and_is_told_again_what_there_is(sim):
    sim.programs.add(Program("*/plugin:*", offers={"example.com/device": "4"}))
    _make(sim, "daemonsets", "registry.example/plugin:1")
    sim.tick(10)
    before = {p["metadata"]["name"]: p["status"] for p in _pods(sim)}
    sim.nodes.machine("n1").restart_kubelet()
    sim.tick(30)
    assert {p["metadata"]["name"]: p["status"] for p in _pods(sim)} == before
    assert sim.node("n1")["status"]["allocatable"]["example.com/device"] == "4"
    sim.api.delete(ALICE, "daemonsets", "x", "default")
    sim.tick(10)
    assert sim.node("n1")["status"]["allocatable"]["example.com/device"] == "0"


def test_a_daemon_set_of_the_fleet_that_is_given_a_template_is_rolled_to_it(sim):
    sim.pods.workload("DaemonSet", "x", namespace="default", nodes=["n1", "n2"])
    sim.tick(5)
    daemon_set = sim.store.get("daemonsets", "x", "default")
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "new:2"}]}}
    sim.store.write("daemonsets", daemon_set.raw | {"spec": daemon_set.raw["spec"] | {"template": template}})
    sim.tick(60)
    nodes = [p["spec"]["nodeName"] for p in _pods(sim)]
    assert len(nodes) == len(set(nodes)), "the fleet makes none of its own any more"
    assert {p["spec"]["containers"][0]["image"] for p in _pods(sim)} == {"new:2"}


def test_what_the_fleet_makes_itself_stays_the_fleets(sim):
    """Pods of `Pods.workload` are replaced by it alone, and go with their owner like others."""
    sim.pods.workload("ReplicaSet", "old", namespace="default", replicas=2)
    sim.tick(10)
    assert len(_pods(sim)) == 2
    sim.api.delete(ALICE, "replicasets", "old", "default")
    sim.tick(60)
    assert _pods(sim) == []
