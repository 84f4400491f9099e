"""A GPU that the KAI Scheduler shares is held by the pods of its group, not by the one that reserves it."""

from __future__ import annotations

import pytest

from clusters.connection import registry
from clusters.inventory import store
from gpus.metrics.samples import Reading
from gpus.models import GpuDevice, IdleHolding, TelemetrySource
from gpus.services import polling, shared_gpus
from tests.clusters.factories import ClusterFactory
from tests.clusters.inventory.test_gpu_groups import RESERVING, grouped, reservation
from tests.gpus.exporting import Exporting, Gpu

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(clock):
    world = Exporting()
    world.node("n1", Gpu("GPU-1", holder=(RESERVING, "r1")), Gpu("GPU-2"))
    world.node("n2", Gpu("GPU-3", holder=(RESERVING, "r2")))
    return world


@pytest.fixture
def cluster(world):
    cluster = ClusterFactory(uid=world.cluster.uid)
    store.observe_nodes(cluster, world.fleet.list("nodes").items, complete=True)
    with registry.override(cluster.pk, world.fleet):
        polling.reconcile()
        yield cluster


def read(cluster, clock):
    clock.forward(seconds=40)
    assert polling.tick(TelemetrySource.objects.get(cluster=cluster).pk)
    return {
        gpu.uuid: [f"{namespace}/{pod}" for namespace, pod, _ in gpu.holders]
        for gpu in GpuDevice.objects.order_by("uuid")
    }


def test_the_pods_of_the_group_on_its_node_hold_the_gpu(cluster, clock):
    pods = [reservation("r1", "g1"), reservation("r2", "g1", node="n2"), grouped("a", "g1"), grouped("b", "g1")]
    store.observe_pods(cluster, [*pods, grouped("c", "g1", node="n2")], complete=True)

    assert read(cluster, clock) == {
        "GPU-1": ["default/a", "default/b"],
        "GPU-2": ["team/trainer-0"],
        "GPU-3": ["default/c"],
    }


def test_held_idle_is_the_time_of_the_pods_that_share_the_gpu(cluster, world, clock):
    world.gpus["n1"][0].busy = 0
    store.observe_pods(cluster, [reservation("r1", "g1"), grouped("a", "g1"), grouped("b", "g1")], complete=True)

    for _ in range(3):
        read(cluster, clock)

    assert set(IdleHolding.objects.values_list("namespace", "pod")) == {("default", "a"), ("default", "b")}


def test_a_gpu_whose_group_has_no_pod_yet_stays_with_its_reservation(cluster, clock):
    store.observe_pods(cluster, [reservation("r1", "g1"), grouped("b", "g2")], complete=True)

    assert read(cluster, clock)["GPU-1"] == [f"{RESERVING}/r1"]


def test_where_no_gpu_is_reserved_it_costs_one_query(cluster, clock, django_assert_num_queries):
    reading = Reading(clock.at, ())
    with django_assert_num_queries(1):
        assert shared_gpus.held_by_their_pods(cluster.pk, reading) is reading
