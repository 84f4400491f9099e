"""Rows of pods that hold GPUs."""

from __future__ import annotations

import pytest

from clusters.inventory import store
from clusters.models import GpuPod, Node
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod
from tests.clusters.inventory.observed import AT, see

pytestmark = pytest.mark.django_db


def hold(cluster, *raws, complete=False, deleted=()):
    return store.observe_pods(cluster, list(raws), complete=complete, at=AT, deleted=deleted)


def allocated(name="n1"):
    return Node.objects.get(name=name).gpu_allocated


def test_gpus_are_counted_per_node_as_pods_come_and_go(notifications):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8), raw_node("n2", gpus=8))
    notifications.clear()

    hold(cluster, raw_pod("a", gpus=2), raw_pod("b", gpus=4), raw_pod("web", gpus=0))
    assert (allocated(), GpuPod.objects.count()) == (6, 2)
    hold(cluster, raw_pod("a", gpus=2, phase="Succeeded"))
    assert (allocated(), GpuPod.objects.count()) == (4, 1)
    hold(cluster, deleted=[raw_pod("b", gpus=4)])

    assert (allocated(), allocated("n2"), GpuPod.objects.count()) == (0, 0, 0)
    assert notifications == [("nodes_changed", [Node.objects.get(name="n1").pk])] * 3


def test_a_pod_of_mig_instances_says_of_which_and_its_node_what_it_offers():
    cluster = ClusterFactory()
    node = raw_node("n1", gpus=4)
    for resources in (node["status"]["capacity"], node["status"]["allocatable"]):
        resources |= {"nvidia.com/mig-1g.10gb": "14", "nvidia.com/mig-3g.40gb": "0", "nvidia.com/mig-": "junk"}
    see(cluster, node)
    pod = raw_pod("a", gpus=1)
    pod["spec"]["containers"].append({"name": "b", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "2"}}})
    hold(cluster, pod)

    row = Node.objects.present().split().get()
    assert (row.gpu_count, row.gpu_allocated, row.instances) == (18, 3, {"1g.10gb": 14})
    assert row.gpu_words.endswith(", 14 × 1g.10gb")
    assert (GpuPod.objects.get().gpus, GpuPod.objects.get().mig) == (3, {"1g.10gb": 2})
    see(cluster, raw_node("n1", gpus=4))
    assert not Node.objects.present().split().exists()


def test_a_complete_list_of_pods_ends_what_it_lacks():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8))
    hold(cluster, raw_pod("a"), complete=True)

    hold(cluster, complete=True)

    assert (allocated(), GpuPod.objects.count()) == (0, 0)


def test_pods_seen_before_their_node_count_once_it_is_there():
    cluster = ClusterFactory()
    hold(cluster, raw_pod("a", gpus=8))

    see(cluster, raw_node("n1", gpus=8))

    assert allocated() == 8


def test_quiet_pods_write_nothing(django_assert_num_queries):
    cluster = ClusterFactory()
    raws = [raw_pod(f"p{i}") for i in range(5)]
    hold(cluster, *raws, complete=True)

    with django_assert_num_queries(1):
        hold(cluster, *raws, complete=True)


def ended(reason, at="2026-03-01T10:00:00Z"):
    return {"terminated": {"reason": reason, "exitCode": 137, "finishedAt": at}}


def with_statuses(*containers, kind="containerStatuses"):
    pod = raw_pod("a", gpus=2)
    pod["status"][kind] = [{"name": f"c{n}", "restartCount": 1} | status for n, status in enumerate(containers)]
    return pod


RUNS = {"running": {"startedAt": "2026-03-01T10:01:00Z"}}


@pytest.mark.parametrize(
    ("containers", "kills", "at"),
    [
        ([{"state": RUNS, "lastState": ended("OOMKilled")}], 1, "2026-03-01T10:00:00+00:00"),
        ([{"state": ended("OOMKilled"), "lastState": {}}], 1, "2026-03-01T10:00:00+00:00"),
        (
            [
                {"state": RUNS, "lastState": ended("OOMKilled", "2026-03-01T09:00:00Z")},
                {"state": RUNS, "lastState": ended("OOMKilled", "2026-03-01T11:00:00Z")},
                {"state": RUNS, "lastState": ended("Error", "2026-03-01T12:00:00Z")},
            ],
            2,
            "2026-03-01T11:00:00+00:00",
        ),
        ([{"state": ended("Completed"), "lastState": ended("OOMKilled")}], 0, None),
        ([{"state": RUNS, "lastState": ended("Error")}], 0, None),
        ([{"state": RUNS}], 0, None),
        ([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended("OOMKilled", "junk")}], 1, None),
    ],
)
def test_containers_that_ran_out_of_memory_are_counted_by_their_last_end(containers, kills, at):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8))

    hold(cluster, with_statuses(*containers))

    pod = GpuPod.objects.get()
    assert (pod.memory_kills, pod.memory_killed_at and pod.memory_killed_at.isoformat()) == (kills, at)


def test_a_kill_that_is_heard_later_reaches_the_row_and_goes_with_the_next_end():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8))
    pod = with_statuses({"state": RUNS})
    killed = with_statuses({"state": RUNS, "lastState": ended("OOMKilled")}, kind="initContainerStatuses")
    failed = with_statuses({"state": RUNS, "lastState": ended("Error")})
    counts = []

    for version, raw in enumerate((pod, killed, failed), start=1):
        raw["metadata"]["resourceVersion"] = str(version)
        hold(cluster, raw)
        counts.append(GpuPod.objects.get().memory_kills)

    assert counts == [0, 1, 0]


@pytest.mark.parametrize("junk", ["text", ["text"], [{"state": "text"}], {"a": 1}])
def test_statuses_that_are_junk_cost_no_gpus(junk):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8))
    pod = raw_pod("a", gpus=2)
    pod["status"]["containerStatuses"] = junk

    hold(cluster, pod)

    assert (allocated(), GpuPod.objects.get().memory_kills) == (2, 0)
