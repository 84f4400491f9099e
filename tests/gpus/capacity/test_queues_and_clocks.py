"""Waits where clocks differ and readings lack: no wait, eviction or length is made up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpus.capacity import queue_report, queue_terms
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
    assert [(wait.outcome, wait.admitted_at is None) for wait in world.waits("train")] == [("", False)]
    changed = world.clock.at + timedelta(seconds=ahead)
    world.conditions("train", ("Evicted", True, changed, "Preempted"))
    for _ in range(4):
        world.read()
        world.clock.forward(minutes=1)
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


def test_the_quota_of_a_queue_is_what_its_chart_has(world):
    world.put("clusterqueues", "of-cpus", spec={"resourceGroups": []}, status={})
    world.read()
    report = queue_report.of(UserFactory(is_superuser=True), ranges.BANDS.preset("6h"))
    assert {line.queue: line.quota for line in report.lines} == {"batch": 8, "of-cpus": 0}
    volcano = queue_terms.of_volcano_queue(
        {"spec": {"deserved": {GPU: "8"}}, "status": {"allocated": {"nvidia.com/mig-1g.10gb": "2"}}}
    )
    assert volcano.quota == 8, "what it merely holds has no part in it"
