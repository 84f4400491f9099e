"""Waits where clocks differ and readings lack: no wait, eviction or length is made up."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from gpus.capacity import observed, queue_report, queue_terms, waits
from gpus.capacity.waits import Readings
from gpus.models import WorkloadWait
from gpus.reports import ranges
from tests.factories import UserFactory
from tests.gpus.capacity import test_queues
from tests.gpus.capacity.test_queues import GPU

world = test_queues.world


@pytest.mark.parametrize("ahead", [60, 7200])
def test_a_cluster_whose_clock_is_ahead_has_no_more_waits_than_events(world, ahead):
    """The same condition is told by each reading; by this clock it is later than the first ones."""
    world.workload("train")
    world.read()
    changed = world.clock.at + timedelta(seconds=ahead)
    world.conditions("train", ("Admitted", True, changed, ""))
    for _ in range(4):
        world.read()
        world.clock.forward(minutes=1)
    world.clock.forward(hours=3)  # the time is past by this clock, too
    world.read()
    assert [(wait.outcome, wait.admitted_at is None) for wait in world.waits("train")] == [("", False)]
    changed = world.clock.at + timedelta(seconds=ahead)
    world.conditions("train", ("Evicted", True, changed, "Preempted"))
    for _ in range(4):
        world.read()
        world.clock.forward(minutes=1)
    world.clock.forward(hours=3)
    world.read()
    assert [wait.outcome for wait in world.waits("train")] == ["evicted", ""]


def test_of_time_in_which_nothing_was_read_no_wait_is_made_up(world):
    """The worker stopped on Friday: one gang is gone on Monday, and one was admitted, evicted and admitted again."""
    begin = world.clock.at
    world.workload("gone")
    world.workload("again")
    world.workload("waits")
    world.read()
    world.clock.forward(hours=60)
    world.delete("gone")
    evicted = {"evictions": [{"reason": "Preempted", "count": 2}]}
    world.conditions("again", ("Admitted", True, world.clock.at - timedelta(minutes=1), ""))
    world.change("again", schedulingStats=evicted)
    report = queue_report.of(UserFactory(is_superuser=True), ranges.BANDS.preset("6h"))
    assert report.longest == timedelta(), "it was read when it began, and not since"
    world.read()
    assert world.waits("gone")[0].ended_at == begin
    first, second = world.waits("again")
    assert (first.outcome, first.evictions, second.is_measured) == ("evicted", 2, False)


@pytest.mark.parametrize(("minutes", "is_measured"), [(5, True), (600, False)])
def test_an_admission_without_a_time_is_measured_only_between_two_near_readings(world, minutes, is_measured):
    """Volcano writes the time again every minute: it was admitted at some time since the reading before."""
    begin = world.clock.at
    raw = {"metadata": {"uid": "g", "name": "g", "namespace": "ml", "creationTimestamp": test_queues.stamp(begin)}}

    def reading(phase: str, at: datetime) -> Readings:
        group = raw | {"spec": {"queue": "q"}, "status": {"phase": phase}}
        return Readings([observed.pod_group(group, at, pods=[[1, 8]], profile="")], {"volcano"})

    waits.record(world.cluster.pk, reading("Pending", begin), begin, None)
    at = begin + timedelta(minutes=minutes)
    waits.record(world.cluster.pk, reading("Running", at), at, begin)
    (row,) = WorkloadWait.objects.filter(system="volcano")
    assert (row.admitted_at, row.is_measured) == (at, is_measured)


def test_an_admission_check_that_is_pending_is_seen(world):
    world.workload("checked")
    world.conditions("checked", ("QuotaReserved", True, world.clock.at, "QuotaReserved"))
    world.read()
    (wait,) = world.waits("checked")
    assert (wait.is_waiting, wait.has_quota) == (True, True)


def test_the_page_rest_and_the_file_have_one_length_of_a_wait(world):
    """Let it wait in a cluster that is not read any more: all three count up to the last reading."""
    world.workload("waits")
    world.clock.forward(minutes=10)
    world.read()
    world.clock.forward(hours=5)
    (row,) = world.client.get("/api/v1/gpus/waits").json()["results"]
    (line,) = json.loads(b"".join(world.client.get("/gpus/queues/waits.json")))
    report = queue_report.of(UserFactory(is_superuser=True), ranges.BANDS.preset("6h"))
    assert (row["waited_seconds"], line["waited_seconds"]) == (600, 600)
    assert report.longest == timedelta(minutes=10)
    assert report.whole.longest is not None
    assert (report.whole.longest.seconds, report.whole.longest.is_least) == (600, True)


def test_the_quota_of_a_queue_is_what_its_chart_has(world):
    world.put("clusterqueues", "of-cpus", spec={"resourceGroups": []}, status={})
    world.read()
    report = queue_report.of(UserFactory(is_superuser=True), ranges.BANDS.preset("6h"))
    assert {line.queue: line.quota for line in report.lines} == {"batch": 8, "of-cpus": 0}
    volcano = queue_terms.of_volcano_queue(
        {"spec": {"deserved": {GPU: "8"}}, "status": {"allocated": {"nvidia.com/mig-1g.10gb": "2"}}}
    )
    assert volcano.quota == 8, "what it merely holds has no part in it"
