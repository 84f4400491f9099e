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


def test_gpus_are_counted_per_node_as_pods_come_and_go(told):
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8), raw_node("n2", gpus=8))
    told.clear()

    hold(cluster, raw_pod("a", gpus=2), raw_pod("b", gpus=4), raw_pod("web", gpus=0))
    assert (allocated(), GpuPod.objects.count()) == (6, 2)
    hold(cluster, raw_pod("a", gpus=2, phase="Succeeded"))
    assert (allocated(), GpuPod.objects.count()) == (4, 1)
    hold(cluster, deleted=[raw_pod("b", gpus=4)])

    assert (allocated(), allocated("n2"), GpuPod.objects.count()) == (0, 0, 0)
    assert told == [("nodes_changed", [Node.objects.get(name="n1").pk])] * 3


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
