"""A failed check is told of until the node passes it; what has no result changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.models import Cluster, Node
from common.clock import now
from gpus.alerts import checks
from gpus.models import CheckRun
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    cluster = ClusterFactory()
    for name in ("n1", "n2"):
        Node.objects.create(cluster=cluster, uid=f"uid-{name}", name=name, gpu_count=8, is_ready=True)
    return cluster


def ran(cluster: Cluster, node: str, outcome: str, *, check: str = "dcgm-medium", hours_ago: float = 1, **more: object):
    at = now() - timedelta(hours=hours_ago)
    return CheckRun.objects.create(
        cluster=cluster, node=Node.objects.get(cluster=cluster, name=node), check_name=check, image="r.example/x:1",
        gpus=8, at_once=1, created_by="operator", outcome=outcome, created_at=at,
        **{"status": "ended", "ended_at": at, "reason": "Memory: GPU 3 has errors.", **more},
    )  # fmt: skip


def failing(cluster: Cluster) -> dict[str, list[str]]:
    conditions = checks.checks_failed(cluster.pk, 0).conditions
    return {condition.name: condition.figures["failed"].split(",") for condition in conditions}


def test_a_node_that_failed_is_told_of_until_it_passes(cluster, django_assert_num_queries):
    ran(cluster, "n1", "passed", hours_ago=5)
    assert failing(cluster) == {}
    failed = ran(cluster, "n1", "failed", hours_ago=4)
    ran(cluster, "n2", "passed", hours_ago=4)
    with django_assert_num_queries(1):
        (condition,) = checks.checks_failed(cluster.pk, 0).conditions
    assert (condition.name, condition.since) == ("n1", failed.ended_at)
    assert "GPU 3 has errors" in condition.sentence
    for outcome in ("unknown", "not-run"):
        ran(cluster, "n1", outcome, hours_ago=3)
    ran(cluster, "n1", "", hours_ago=2, status="running", ended_at=None)
    assert list(failing(cluster)) == ["n1"]
    ran(cluster, "n1", "passed", hours_ago=1)
    assert failing(cluster) == {}


def test_each_check_of_a_node_stands_for_itself_and_the_node_is_one_alert(cluster):
    ran(cluster, "n1", "failed", hours_ago=4)
    ran(cluster, "n1", "failed", check="fio-scratch", hours_ago=3)
    ran(cluster, "n1", "passed", check="nccl-all-reduce", hours_ago=2)
    assert failing(cluster) == {"n1": ["dcgm-medium", "fio-scratch"]}
    ran(cluster, "n1", "passed", hours_ago=1)
    assert failing(cluster) == {"n1": ["fio-scratch"]}
    ran(cluster, "n1", "passed", check="fio-scratch", hours_ago=0.5)
    assert failing(cluster) == {}


def test_of_a_check_that_the_catalog_lost_and_of_a_node_that_is_gone(cluster):
    ran(cluster, "n1", "failed", check="of-before")
    assert failing(cluster) == {"n1": ["of-before"]}
    Node.objects.filter(name="n1").update(gone_at=now())
    assert failing(cluster) == {}


def test_another_clusters_nodes_are_its_own(cluster):
    ran(cluster, "n1", "failed")
    assert failing(ClusterFactory()) == {}
