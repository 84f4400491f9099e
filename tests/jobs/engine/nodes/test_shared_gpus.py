"""A drain of a node with GPUs that the KAI Scheduler shares: the reservation goes last, and PDBs still decide."""

from __future__ import annotations

import pytest

from tests.jobs.conftest import World

REBOOT = {"cmdline.iommu": "pt"}
LABELS = {"app": "vllm", "runai-gpu-group": "g1"}
RESERVATION = ("kai-resource-reservation", "gpu-reservation-n1-abcde")


@pytest.fixture
def world(make_world) -> World:
    world: World = make_world(nodes=1)
    world.sim.pods.workload("Deployment", "vllm", namespace="chat", replicas=1, labels=LABELS)
    namespace, name = RESERVATION
    world.sim.pods.add(name, node="n1", namespace=namespace, gpus=1, labels={"runai-gpu-group": "g1"})
    world.tick(10)
    return world


def pods(world: World) -> set[tuple[str, str]]:
    return {
        (pod["metadata"]["namespace"], pod["metadata"]["name"])
        for pod in world.fleet.pods_on("n1")
        if not pod["metadata"].get("deletionTimestamp")
    }


def test_a_reservation_is_not_evicted_while_a_disruption_budget_keeps_a_pod_that_shares_the_gpu(world):
    world.sim.pods.budget("vllm", namespace="chat", labels={"app": "vllm"}, minAvailable=1)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, drain_timeout_seconds=120))

    step = world.until(rollout, "held", seconds=400)

    assert "chat/vllm" in step.error
    assert RESERVATION in pods(world)
    assert not world.node("n1").is_cordoned


def test_it_is_evicted_after_them_without_a_consent_for_unmanaged_pods(world):
    plan = world.plan(world.revision(REBOOT), canary=0)
    assert not [finding for finding in plan.findings if finding["code"] == "bare-pods"]
    rollout = world.started(plan)

    world.until(rollout, "restarting", seconds=400)

    assert RESERVATION not in pods(world)


def test_a_pod_of_that_namespace_without_a_group_needs_the_consent_as_any_other(world):
    world.sim.pods.add("debug", node="n1", namespace=RESERVATION[0], labels={"app": "debug"})
    world.tick(5)

    plan = world.plan(world.revision(REBOOT), canary=0)

    assert [finding["code"] for finding in plan.findings if finding["code"] == "bare-pods"]


def test_a_reservation_stays_for_a_pod_that_the_drain_leaves(world):
    world.sim.pods.add(
        "monitor", node="n1", namespace="chat", labels=LABELS, owner={"kind": "DaemonSet", "name": "monitor"}
    )
    world.tick(5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))

    world.until(rollout, "succeeded", seconds=900)

    assert RESERVATION in pods(world)
