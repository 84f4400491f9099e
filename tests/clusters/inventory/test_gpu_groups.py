"""GPUs that the KAI Scheduler shares: each reserved one counts once, and the pods of its group hold it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.inventory import rows, store
from clusters.models import GpuJob, GpuPod, JobPod, Node
from clusters.sharing import gpu_groups
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod
from tests.clusters.inventory.observed import AT, see

pytestmark = pytest.mark.django_db
RESERVING = "kai-resource-reservation"


def grouped(name, *groups, **fields):
    """A pod that shares a GPU of each group, labeled as KAI's binder does."""
    pod = raw_pod(name, gpus=0, **fields)
    several = {f"runai-gpu-group/{group}": group for group in groups}
    pod["metadata"]["labels"] = several if len(groups) > 1 else {"runai-gpu-group": groups[0]}
    return pod


def reservation(name, group, **fields):
    pod = raw_pod(name, gpus=1, **fields)
    pod["metadata"] |= {"namespace": RESERVING, "labels": {"app": RESERVING, "runai-gpu-group": group}}
    del pod["metadata"]["ownerReferences"]
    return pod


@pytest.fixture
def cluster():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8), raw_node("n2", gpus=8))
    return cluster


def hold(cluster, *raws, deleted=(), complete=False):
    store.observe_pods(cluster, list(raws), complete=complete, at=AT, deleted=deleted)


def allocated():
    return dict(Node.objects.order_by("name").values_list("name", "gpu_allocated"))


def holders():
    return dict(GpuPod.objects.order_by("name").values_list("name", "gpus"))


def test_three_pods_share_one_gpu_beside_pods_with_whole_ones(cluster):
    sharing = [grouped(name, "g1") for name in ("a", "b", "c")]
    hold(cluster, reservation("r1", "g1"), *sharing, raw_pod("whole", gpus=2))

    assert allocated() == {"n1": 3, "n2": 0}
    assert holders() == {"a": 1, "b": 1, "c": 1, "whole": 2}

    hold(cluster, deleted=sharing[:2])
    assert allocated() == {"n1": 3, "n2": 0}
    hold(cluster, deleted=[sharing[2], reservation("r1", "g1")])
    assert allocated() == {"n1": 2, "n2": 0}
    assert holders() == {"whole": 2}


def test_a_pod_may_share_several_gpus(cluster):
    hold(cluster, reservation("r1", "g1"), reservation("r2", "g2"), grouped("a", "g1", "g2"), grouped("b", "g2"))

    assert allocated()["n1"] == 2
    assert holders() == {"a": 2, "b": 1}


def test_a_reserved_gpu_is_taken_before_a_pod_shares_it_and_held_by_none(cluster):
    hold(cluster, reservation("r1", "g1"))

    assert allocated()["n1"] == 1
    assert holders() == {}


def test_the_group_comes_with_the_binding_and_goes_with_the_pod(cluster):
    waiting = raw_pod("a", gpus=0, node="", phase="Pending")
    waiting["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    hold(cluster, waiting)
    assert holders() == {}

    hold(cluster, reservation("r1", "g1"), grouped("a", "g1"))
    assert holders() == {"a": 1}
    hold(cluster, grouped("a", "g1", phase="Succeeded"))
    assert holders() == {}
    assert allocated()["n1"] == 1  # until the reservation is gone


def test_a_label_alone_takes_no_gpu_from_a_node(cluster):
    hold(cluster, grouped("a", "g1"), grouped("b", "g2"), reservation("r2", "g2", node="n2"))

    assert allocated() == {"n1": 0, "n2": 1}


def test_a_label_does_not_hide_the_gpus_of_a_pod_that_requests_some(cluster):
    pod = raw_pod("a", gpus=4)
    pod["metadata"]["labels"] = {"runai-gpu-group": "g1"}
    hold(cluster, pod, raw_pod("gpu-reservation-n1-abcde", gpus=2))

    assert allocated()["n1"] == 6
    assert holders() == {"a": 4, "gpu-reservation-n1-abcde": 2}


def test_a_reservation_that_was_taken_for_a_holder_before_an_upgrade_ends_as_one(cluster):
    before = reservation("r1", "g1")
    hold(cluster, before)
    GpuPod.every.update(gpus=1, devices={}, job_key="k1", resource_version="")
    GpuJob.objects.create(cluster=cluster, key="k1", queued_at=AT, state="running", size=1)
    GpuJob.objects.update(pods=GpuJob.stored([JobPod("uid-of-pod-r1", "r1", "n1", 1, 0, 1, None, "", 0)]))

    hold(cluster, before, grouped("a", "g1"), complete=True)  # the very same object, in the first list afterwards

    assert holders() == {"a": 1}
    assert allocated()["n1"] == 1
    assert GpuJob.objects.get(key="k1").state == "ended"


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


@given(st.dictionaries(st.sampled_from(["runai-gpu-group", "runai-gpu-group/x", "app"]), ANYTHING) | ANYTHING)
def test_labels_that_are_junk_never_raise(labels):
    pod = raw_pod("a", gpus=0)
    pod["metadata"] |= {"labels": labels, "namespace": RESERVING}

    values = rows.gpu_pod(pod)

    assert values is None or set(values["devices"]) == set(gpu_groups.devices(pod))
