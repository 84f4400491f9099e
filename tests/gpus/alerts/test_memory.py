"""Containers of GPU pods that ran out of memory: reported for as long as the rule's window, one alert for one owner."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.models import Cluster, GpuPod, Node
from common.clock import now
from gpus.alerts import memory
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    cluster = ClusterFactory(reach=Cluster.Reach.REACHABLE, observed_at=now(), leases_at=now())
    Node.objects.create(cluster=cluster, uid="u1", name="n1", gpu_count=8, is_ready=True)
    return cluster


def pod(cluster: Cluster, name: str, *, minutes_ago: float = 5, kills: int = 1, **more: object) -> GpuPod:
    given = {"namespace": "team", "gpus": 1, "node_name": "n1", "owner_kind": "Job", "owner_name": "train"} | more
    at = now() - timedelta(minutes=minutes_ago) if kills else None
    return GpuPod.every.create(
        cluster=cluster, uid=f"{cluster.pk}-{name}", name=name, memory_kills=kills, memory_killed_at=at, **given
    )


def subjects(cluster: Cluster, hours: float = 1) -> list[str]:
    return [condition.subject for condition in memory.out_of_memory(cluster.pk, hours).conditions]


def test_it_is_reported_within_the_window_and_ends_with_it(cluster, clock):
    pod(cluster, "a", minutes_ago=0)
    pod(cluster, "fine", kills=0)
    assert subjects(cluster) == ["team/Job/train"]
    clock.forward(minutes=59)
    Cluster.objects.update(observed_at=now(), leases_at=now())
    assert subjects(cluster) == ["team/Job/train"]
    clock.forward(minutes=2)
    Cluster.objects.update(observed_at=now(), leases_at=now())
    assert subjects(cluster) == []
    assert subjects(cluster, hours=24) == ["team/Job/train"]


def test_a_pod_that_is_gone_ends_it(cluster):
    row = pod(cluster, "a")
    row.delete()
    assert subjects(cluster) == []


def test_pods_of_one_owner_are_one_alert_and_name_who_is_concerned(cluster):
    pod(cluster, "b", minutes_ago=30, kills=2)
    pod(cluster, "a")
    pod(cluster, "single", owner_kind="", owner_name="", node_name="")
    of_job, alone = memory.out_of_memory(cluster.pk, 1).conditions
    assert (of_job.name, of_job.figures) == ("team/train", {"owner": "Job train", "pods": 2, "containers": 3})
    assert [(member.name, member.figures["containers"]) for member in of_job.members] == [("team/a", 1), ("team/b", 2)]
    assert of_job.since == now() - timedelta(minutes=30) or of_job.since < now() - timedelta(minutes=29)
    assert of_job.sentence.startswith("3 containers of Job train ran out of memory, the last one at ")
    assert of_job.node == Node.objects.get().pk
    assert (alone.subject, alone.node, alone.namespace) == ("team//", None, "team")


def test_pods_without_gpus_and_of_other_clusters_are_not_reported(cluster):
    pod(cluster, "claims-a-disk", gpus=0)
    pod(ClusterFactory(), "elsewhere")
    assert subjects(cluster) == []


def test_of_a_cluster_that_is_not_heard_nothing_is_judged(cluster):
    pod(cluster, "a")
    Cluster.objects.update(observed_at=now() - timedelta(hours=1))
    result = memory.out_of_memory(cluster.pk, 1)
    assert (list(result.conditions), bool(result.blind)) == ([], True)


def test_as_many_queries_for_many_pods(cluster, django_assert_num_queries):
    for number in range(40):
        pod(cluster, f"p{number}", owner_name=f"train-{number % 7}")
    with django_assert_num_queries(3):
        assert len(subjects(cluster)) == 7
