"""Readings into rows of history: what is written, when, and what a worker that is killed, late or robbed leaves."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import Sum

from clusters.models import Node, Pool
from gpus.metrics.samples import Metric
from gpus.models import GpuBand, GpuOpen, GpuPacked, IdleHolding, NodeTally
from gpus.services.polling import ClaimLost
from gpus.storage import history, idle_tracking, retention, rollups, sharding
from tests.gpus.recording import Recording

pytestmark = pytest.mark.django_db
STATES = GpuBand.STATES


@pytest.fixture
def world(clock):
    at = clock.at.replace(hour=12, minute=0, second=0, microsecond=0)
    world = Recording(at)
    world.held = {("n0", 0): ("team/a", 0.9), ("n0", 1): ("team/a", 0.2), ("n1", 0): ("lab/b", 0.0)}
    world.pods()
    world.store()
    return world


def bands(scope="cluster", name="", seconds=300):
    rows = GpuBand.objects.filter(scope=scope, name=name, seconds=seconds).order_by("start")
    return [{state: getattr(row, state) for state in STATES if getattr(row, state)} for row in rows]


def everything():
    """All of history, to be compared."""
    return [
        list(model.objects.order_by("pk").values()) for model in (GpuOpen, GpuPacked, GpuBand, NodeTally, IdleHolding)
    ]


def test_five_minutes_are_written_once_they_are_over(world):
    world.go_on(299)
    assert not GpuPacked.objects.exists()
    world.go_on(1)
    by_device = history.buckets(world.cluster.pk, world.at - timedelta(hours=1), world.at)
    assert {device.node_name for device in by_device} == {"n0", "n1"}
    ((bucket,),) = [buckets for device, buckets in by_device.items() if device.uuid == "GPU-n0-0"]
    assert (bucket.start, bucket.covered, bucket.held, bucket.holder) == (
        world.at - timedelta(minutes=5), 1, 1, "team/a",
    )  # fmt: skip
    assert bucket.means[Metric.BUSY] == pytest.approx(0.9)
    assert history.buckets(world.cluster.pk, world.at, world.at + timedelta(hours=1)) == {}


def test_of_some_nodes_only_theirs_is_read_with_one_query(world, django_assert_num_queries):
    world.go_on(600)
    with django_assert_num_queries(1):
        by_device = history.buckets(world.cluster.pk, world.at - timedelta(hours=1), world.at, nodes=["n1"])
    assert {device.node_name for device in by_device} == {"n1"}
    assert all(len(buckets) == 2 for buckets in by_device.values())


def test_bands_of_each_scope_sum_to_its_capacity(world):
    Pool.objects.create(cluster=world.cluster, name="odd", selector={"matchLabels": {"half": "1"}})
    Node.objects.filter(name="n1").update(is_cordoned=True)
    world.go_on(300)
    assert bands() == [{"effective": 300, "low": 300, "held": 300, "free": 600, "out": 900}]
    assert bands("model", "NVIDIA H100 80GB HBM3") == bands()
    assert bands("pool", "odd") == [{"held": 300, "out": 900}]
    assert bands("namespace", "team") == [{"effective": 300, "low": 300}]
    assert bands("namespace", "lab") == [{"held": 300}]
    assert bands(seconds=3600) == bands()
    assert not GpuBand.objects.filter(scope="node").exists()
    world.go_on(3300)
    assert bands("node", "n0", 3600) == [{"effective": 3600, "low": 3600, "free": 7200}]
    total = GpuBand.objects.filter(scope="cluster", seconds=300).aggregate(**{name: Sum(name) for name in STATES})
    assert sum(total.values()) == 8 * 3600
    assert bands(seconds=3600) == [{name: value for name, value in total.items() if value}]


def test_energy_is_the_counters_where_there_is_one_and_power_times_time_elsewhere(world):
    world.energy = {("n0", 0): 1000.0}
    world.go_on(60)
    for _ in range(5):
        world.energy["n0", 0] += 60 * 500
        world.go_on(60)
    (row,) = GpuBand.objects.filter(scope="namespace", name="team", seconds=300)
    first, others = 60 * (100 + 600 * 0.9) + 4 * 60 * 500, 300 * (100 + 600 * 0.2)
    assert row.joules == pytest.approx(first + others)


def test_an_hour_of_each_device_is_made_of_its_fives(world):
    world.go_on(1800)
    world.held["n0", 0] = ("team/a", 0.5)
    world.go_on(1800)
    by_device = history.hours(world.cluster.pk, world.at - timedelta(hours=1), world.at, nodes=["n0"])
    ((hour,),) = [hours for device, hours in by_device.items() if device.uuid == "GPU-n0-0"]
    assert (hour.covered, hour.held, hour.holder) == (1, 1, "team/a")
    assert hour.means[Metric.BUSY] == pytest.approx(0.7, rel=1e-4)


def test_a_reading_stored_twice_or_late_changes_nothing(world):
    world.go_on(330)
    before = everything()
    reading = world.reading()
    rollups.store(world.cluster.pk, reading, claimed=world.claimed)
    assert everything() == before
    world.at -= timedelta(seconds=60)
    world.held.clear()
    rollups.store(world.cluster.pk, world.reading(), claimed=world.claimed)
    after = everything()
    assert [*after[:3], after[4]] == [*before[:3], before[4]]


def test_a_lost_claim_writes_nothing(world):
    world.go_on(270)
    before = everything()

    @contextmanager
    def taken():
        raise ClaimLost
        yield

    world.at += timedelta(seconds=60)
    with pytest.raises(ClaimLost):
        rollups.store(world.cluster.pk, world.reading(), claimed=taken)
    assert everything() == before


def test_a_worker_killed_between_two_groups_counts_neither_twice(world, monkeypatch):
    monkeypatch.setattr(sharding, "DEVICES", 2)
    monkeypatch.setattr(rollups, "AT_ONCE", 1)
    world.go_on(240)
    assert sharding.number("n0", 4) != sharding.number("n1", 4)
    opened = 0

    @contextmanager
    def dying():
        nonlocal opened
        opened += 1
        if opened > 1:
            raise KeyboardInterrupt
        with transaction.atomic():
            yield

    world.at += timedelta(seconds=90)
    with pytest.raises(KeyboardInterrupt):
        rollups.store(world.cluster.pk, world.reading(), claimed=dying)
    world.go_on(30)
    (row,) = GpuBand.objects.filter(scope="cluster", seconds=300)
    assert row.recorded == 300
    assert sum(getattr(row, name) for name in STATES) == 8 * 300
    by_device = history.buckets(world.cluster.pk, world.at - timedelta(hours=1), world.at)
    assert {bucket.covered for buckets in by_device.values() for bucket in buckets} == {1}
    assert len(by_device) == 8


def test_a_cluster_that_grows_is_grouped_anew_and_loses_nothing(world, monkeypatch):
    world.go_on(450)
    monkeypatch.setattr(sharding, "DEVICES", 2)
    world.go_on(3150)
    assert set(GpuOpen.objects.values_list("of", flat=True)) == {4}
    by_device = history.buckets(world.cluster.pk, world.at - timedelta(hours=1), world.at, nodes=["n0", "n1"])
    assert {len(buckets) for buckets in by_device.values()} == {12}
    hours = history.hours(world.cluster.pk, world.at - timedelta(hours=1), world.at)
    assert {(len(buckets), buckets[0].covered) for buckets in hours.values()} == {(1, 1)}
    (row,) = GpuBand.objects.filter(scope="cluster", seconds=3600)
    assert sum(getattr(row, name) for name in STATES) == pytest.approx(8 * 3600)


def test_lost_telemetry_is_unknown_by_whoever_holds_it_and_never_zero(world):
    world.go_on(300)
    world.lose(960)
    assert bands()[1:] == [{"held_unknown": 900, "free_unknown": 1500}] * 3
    assert bands("namespace", "team")[1:] == [{"held_unknown": 600}] * 3
    assert history.buckets(world.cluster.pk, world.at - timedelta(seconds=960), world.at) == {}
    world.go_on(600)
    assert bands()[5] == bands()[0]


def test_a_node_whose_exporter_is_silent_is_unknown_and_the_rest_goes_on(world):
    world.silent = {"n0"}
    world.go_on(300)
    assert bands() == [{"held": 300, "held_unknown": 600, "free": 900, "free_unknown": 600}]


def test_a_node_that_is_gone_is_accounted_for_up_to_then(world):
    world.go_on(300)
    world.names = ["n0"]
    Node.objects.filter(name="n1").update(gone_at=world.at)
    world.go_on(3600)
    assert bands()[1] == {"effective": 300, "low": 300, "free": 600}
    assert bands("node", "n1", 3600) == [{"held": 300, "free": 900}]
    assert not IdleHolding.objects.exists()


def test_the_steps_of_time_are_those_of_utc_through_a_change_of_the_clocks(clock):
    world = Recording(clock.at.replace(month=3, day=29, hour=0, minute=30, second=0, microsecond=0))
    world.store()
    world.go_on(3 * 3600, every=170)
    hours = GpuBand.objects.filter(scope="cluster", seconds=3600).order_by("start")
    assert [(row.start.hour, row.recorded) for row in hours] == [(0, 1800), (1, 3600), (2, 3600), (3, 1800)]


# ── who holds GPUs idle ───────────────────────────────────────────────────────────────────────────────────────────────
def idle(world):
    (row,) = IdleHolding.objects.all()
    return row, idle_tracking.so_far(row, world.at)


def test_a_pod_is_idle_since_the_first_reading_that_found_all_its_gpus_so(world):
    row, seconds = idle(world)
    assert (row.namespace, row.pod, row.node_name, row.gpus, row.since, seconds) == (
        "lab", "b", "n1", 1, world.at, 0,
    )  # fmt: skip
    began = world.at
    world.go_on(1800)
    row, seconds = idle(world)
    assert (row.since, seconds) == (began, 1800)
    world.held["n1", 1] = ("lab/b", 0.6)
    world.go_on(60)
    assert not IdleHolding.objects.exists()
    world.held["n1", 1] = ("lab/b", 0.0)
    world.go_on(60)
    row, seconds = idle(world)
    assert (row.gpus, row.since, seconds) == (2, world.at - timedelta(seconds=60), 120)


def test_idle_hours_are_those_that_readings_cover(world):
    world.go_on(600)
    world.lose(1200)
    assert idle(world)[1] == 600
    world.go_on(600)
    row, seconds = idle(world)
    assert (row.since, seconds) == (world.at - timedelta(seconds=2400), 1200)
    world.at += timedelta(seconds=900)
    world.go_on(60)  # nothing was read for 15 minutes: three of them are this reading's
    assert idle(world)[1] == 1200 + 180


def test_after_an_hour_without_telemetry_idleness_counts_anew(world):
    world.go_on(600)
    world.lose(4000)
    assert not IdleHolding.objects.exists()
    world.go_on(120)
    row, seconds = idle(world)
    assert (world.at - row.since).total_seconds() == seconds == 180


def test_an_idle_row_is_written_every_few_minutes_and_not_at_every_reading(world):
    world.go_on(240, every=60)
    assert IdleHolding.objects.get().counted_until == world.at - timedelta(seconds=240)
    world.go_on(60)
    assert IdleHolding.objects.get().counted_until == world.at


def test_a_reading_taken_twice_counts_no_idle_second_twice(world):
    world.go_on(300)
    for _ in range(3):
        rollups.store(world.cluster.pk, world.reading(), claimed=world.claimed)
    assert idle(world)[1] == 300


# ── what is forgotten ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_old_goes_and_the_bands_stay_longest(world, settings, monkeypatch, clock):
    monkeypatch.setattr(retention, "AT_ONCE", 3)
    world.go_on(3600)
    began = clock.at
    clock.forward(seconds=(settings.SETPOINT_GPU_BUCKET_DAYS * 24 + 2) * 3600)
    assert retention.forget_old() == 12 * (1 + 4)
    assert set(GpuPacked.objects.values_list("seconds", flat=True)) == {3600}
    clock.forward(seconds=(settings.SETPOINT_GPU_HOUR_DAYS * 24 + 2) * 3600 - (clock.at - began).total_seconds())
    retention.forget_old()
    assert not GpuPacked.objects.exists()
    assert set(GpuBand.objects.values_list("scope", flat=True)) == {"cluster", "model", "namespace"}
    clock.forward(seconds=settings.SETPOINT_GPU_BAND_DAYS * 86400)
    retention.forget_old()
    assert not GpuBand.objects.exists()
