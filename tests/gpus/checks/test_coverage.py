"""Nodes that a schedule of checks takes: those due and idle, in order, and none that a run would object to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters import objects
from clusters.models import Cluster, GpuPod, Node
from common.clock import now
from gpus.models import CheckRun, CheckSchedule
from gpus.services.checks import coverage, holds, idleness, queueing, schedules, starting
from gpus.services.checks.catalog import CHECKS
from gpus.storage import retention
from tests.clusters.factories import ClusterFactory
from tests.gpus.checks.conftest import IMAGE

pytestmark = pytest.mark.django_db
Status, Outcome = CheckRun.Status, CheckRun.Outcome
MEDIUM = CHECKS["dcgm-medium"]


# ── Which nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_schedule_checks_every_idle_node_and_each_again_after_its_interval(scheduling, clock):
    scheduling.add(every_days=7)
    assert len(scheduling.minute()) == 6
    for run in CheckRun.objects.all():
        assert scheduling.ended(run).outcome == Outcome.PASSED
        assert run.created_by == f"schedule of {scheduling.world.operator}"
    assert scheduling.minute() == []
    scheduling.pass_(clock, days=6, hours=23)
    assert scheduling.minute() == []
    scheduling.pass_(clock, hours=2)
    assert len(scheduling.minute()) == 6


def test_nodes_that_were_checked_longest_ago_come_first_and_those_never_checked_before_them(scheduling):
    for node, days in [("n1", 8), ("n2", 30), ("n3", 9), ("n4", 6), ("n5", 20)]:
        scheduling.ran(node, "passed", ago=timedelta(days=days))
        scheduling.ran(node, "passed", ago=timedelta(days=60))
    scheduling.ran("n3", "passed", ago=timedelta(days=1), check_name="dcgm-long")
    schedule = scheduling.add(every_days=7)
    order = [node.name for node in coverage.due(schedule, MEDIUM, 10)]
    assert order == ["n6", "n2", "n5", "n3", "n1"]
    CheckSchedule.objects.update(at_once=2)
    assert scheduling.minute() == ["n2", "n6"]


@pytest.mark.parametrize(
    ("outcome", "again_after"),
    [
        ("passed", timedelta(days=7)), ("failed", timedelta(days=7)), ("unknown", timedelta(days=1)),
        ("not-run", timedelta(hours=1)),
    ],
)  # fmt: skip
def test_how_soon_a_node_is_tried_again_follows_from_what_came_of_the_last_run(scheduling, outcome, again_after):
    """A run that gave no result may have been displaced: it is repeated the next day, and no pass is assumed."""
    scheduling.add(every_days=7)
    scheduling.ran("n1", outcome, ago=again_after - timedelta(minutes=1))
    scheduling.ran("n2", outcome, ago=again_after + timedelta(minutes=1))
    assert scheduling.minute() == ["n2", "n3", "n4", "n5", "n6"]


def test_a_node_that_never_is_carried_out_keeps_no_other_waiting(scheduling, clock):
    """Its tries count for the order: else it would be first again after each pause."""
    scheduling.add(at_once=1)
    for node, days in [("n2", 8), ("n3", 9), ("n4", 10), ("n5", 11), ("n6", 12)]:
        scheduling.ran(node, "passed", ago=timedelta(days=days))
    assert scheduling.minute() == ["n1"]
    scheduling.end_all("not-run")
    scheduling.pass_(clock, hours=2)
    assert scheduling.minute() == ["n6"]


def busy(world, node):
    GpuPod.objects.create(cluster=world.cluster, uid="u", namespace="team", name="p", node_name=node.name, gpus=1)


STATES = {
    "ready": lambda world, node: None,
    "not ready": lambda world, node: Node.objects.filter(pk=node.pk).update(is_ready=False),
    "cordoned": lambda world, node: Node.objects.filter(pk=node.pk).update(is_cordoned=True),
    "driver": lambda world, node: Node.objects.filter(pk=node.pk).update(driver_upgrade="upgrade-required"),
    "busy": busy,
    "step": lambda world, node: world.started(),
    "gone": lambda world, node: Node.objects.filter(pk=node.pk).update(gone_at=now()),
}


@pytest.mark.parametrize("state", STATES)
def test_only_nodes_are_queued_to_which_a_run_would_not_object(scheduling, state):
    """`idleness.idle` is `idleness.objection` of many nodes."""
    world, node = scheduling.world, scheduling.world.node("n1")
    STATES[state](world, node)
    run = CheckRun.objects.create(
        cluster=world.cluster, node=node, check_name=MEDIUM.name, image=IMAGE, gpus=8, at_once=1
    )
    run = CheckRun.objects.select_related("cluster", "node").get(pk=run.pk)
    objection = idleness.objection(run)
    run.delete()
    scheduling.add()
    assert ("n1" in scheduling.minute()) == (not objection) == (state == "ready")


OFFERS = [
    ({"nvidia.com/gpu": "8"}, {}, {}), ({"nvidia.com/gpu": "0"}, {}, {}), ({"nvidia.com/gpu": "08"}, {}, {}),
    ({"nvidia.com/gpu": "8k"}, {}, {}), ({"nvidia.com/gpu": 8}, {}, {}), ({"amd.com/gpu": "8"}, {}, {}),
    ({"nvidia.com/gpu": "10", "cpu": "1"}, {}, {}), ({"a": "nvidia.com/gpu", "b": "8"}, {}, {}),
    ({"nvidia.com/gpu": "7", "nvidia.com/mig-1g.10gb": "2"}, {}, {}),
    ({"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "0"}, {}, {}),
    ({"nvidia.com/gpu": "7", "nvidia.com/mig-1g.10gb.shared": "4"}, {}, {}),
    ({"nvidia.com/gpu": "7", "nvidia.com/gpu.shared": "4"}, {}, {}),
    ({"amd.com/gpu": "7", "amd.com/cpx_nps4": "4"}, {}, {}), ({"amd.com/gpu": "8", "amd.com/cpx_nps4": "0"}, {}, {}),
    ({"nvidia.com/gpu": "8"}, {}, {"": [32, 8]}), ({"nvidia.com/gpu": "8"}, {"1g.10gb": 3}, {}),
    ({"nvidia.com/gpu": "8"}, {"": 3}, {}), ({"nvidia.com/gpu": "8"}, {"1g.10gb": 0}, {}), ({"cpu": "8"}, {}, {}),
    ({}, {"": 8}, {}), ({"nvidia.com/gpu": "7", "nvidia.com/GA102GL_A10": "1"}, {}, {}),
    ({"nvidia.com/gpu": "0", "nvidia.com/GRID_T4-1Q": "8"}, {}, {}),
]  # fmt: skip
"""allocatable, gpus_by_claim, gpu_shares."""


@pytest.mark.parametrize("check", ["dcgm-medium", "fio-scratch"])
@pytest.mark.parametrize("offer", OFFERS, ids=str)
def test_split_and_shared_gpus_are_left_out_as_by_hand(scheduling, offer, check):
    allocatable, by_claim, shares = offer
    node = scheduling.world.node("n1")
    node.allocatable, node.gpus_by_claim, node.gpu_shares, node.gpu_count = allocatable, by_claim, shares, 8
    node.gpu_virtual = objects.virtual_count(allocatable)
    node.save()
    is_taken = idleness.takers(CHECKS[check]).filter(pk=node.pk).exists()
    assert is_taken == (not starting._objection(CHECKS[check], "n1", node))


def test_nodes_of_another_cluster_are_not_touched_nor_counted(scheduling):
    other = ClusterFactory(ownership=Cluster.Ownership.OURS, reach="reachable", observed_at=now(), budget=10)
    about = {"gpu_count": 8, "is_ready": True, "allocatable": {"nvidia.com/gpu": "8"}}
    Node.objects.create(cluster=other, uid="x", name="n1", **about)
    schedule = scheduling.add()
    assert len(scheduling.minute()) == 6
    assert not CheckRun.objects.filter(cluster=other).exists()
    assert coverage.of([schedule])[schedule.pk].nodes == 6
    GpuPod.objects.create(cluster=other, uid="u", namespace="a", name="p", node_name="n2", gpus=1)
    CheckRun.objects.all().delete()
    assert len(scheduling.minute()) == 6, "a pod of the other cluster, on a node of the same name"


# ── Many ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def grown(scheduling, nodes, clusters):
    about = {"gpu_count": 8, "is_ready": True, "allocatable": {"nvidia.com/gpu": "8"}}
    rows = [Node(cluster=scheduling.world.cluster, uid=f"m{n}", name=f"m{n}", **about) for n in range(nodes)]
    Node.objects.bulk_create(rows)
    for _ in range(clusters):
        cluster = ClusterFactory(ownership=Cluster.Ownership.OURS, reach="reachable", observed_at=now())
        schedules.add("dcgm-medium", cluster, every_days=3, at_once=1, by=scheduling.world.operator)


def test_as_many_queries_for_a_large_fleet_as_for_a_small_one(scheduling, django_assert_max_num_queries):
    schedule = scheduling.add(at_once=50)
    Cluster.objects.update(budget=50)
    for size in (0, 300):
        grown(scheduling, size, clusters=size // 20)
        CheckRun.objects.all().delete()
        with django_assert_max_num_queries(1):
            assert schedule.pk in queueing.due()
        with django_assert_max_num_queries(15):
            assert queueing.queue(schedule.pk) == min(50, 6 + size)
        rows = list(CheckSchedule.objects.select_related("cluster"))
        with django_assert_max_num_queries(6):
            holds.states(rows)
            coverage.of(rows)


def test_a_result_is_kept_as_long_as_a_schedule_may_look_for_it(scheduling, settings):
    settings.SETPOINT_GPU_BAND_DAYS = 1
    scheduling.ran("n1", "passed", ago=timedelta(days=89))
    scheduling.ran("n1", "passed", ago=timedelta(days=91))
    retention.forget_old()
    assert CheckRun.objects.count() == 1


def test_coverage_counts_nodes_with_a_result_within_the_interval(scheduling):
    schedule = scheduling.add(every_days=7)
    scheduling.ran("n1", "passed", ago=timedelta(days=6))
    scheduling.ran("n1", "unknown", ago=timedelta(days=1))
    scheduling.ran("n2", "failed", ago=timedelta(days=2))
    oldest = scheduling.ran("n3", "passed", ago=timedelta(days=8))
    scheduling.ran("n4", "unknown", ago=timedelta(days=2))
    scheduling.ran("n5", "passed", ago=timedelta(days=2), check_name="dcgm-long")
    counted = coverage.of([schedule])[schedule.pk]
    assert (counted.nodes, counted.checked, counted.oldest_at) == (6, 2, oldest.ended_at)
