"""Polling of one cluster's telemetry: claims, stored samples, and the meaning of an absent answer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DataError

from clusters.connection import registry
from clusters.inventory import store
from gpus import tasks
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import polling
from gpus.storage import devices
from gpus.telemetry import exporters
from tests.clusters.factories import ClusterFactory
from tests.gpus.exporting import NAMESPACE, Exporting, Gpu

pytestmark = pytest.mark.django_db
State = TelemetrySource.State
HALF_A_MINUTE = timedelta(seconds=40)


@pytest.fixture
def world(clock):
    world = Exporting()
    world.node("n1", Gpu("GPU-1"), Gpu("GPU-2", busy=0, holder=None))
    world.node("n2", Gpu("GPU-3", busy=50))
    return world


@pytest.fixture
def source(world):
    cluster = ClusterFactory(uid=world.cluster.uid)
    store.observe_nodes(cluster, world.fleet.list("nodes").items, complete=True)
    with registry.override(cluster.pk, world.fleet):
        polling.reconcile()
        yield TelemetrySource.objects.get(cluster=cluster)


def again(source, clock):
    """The next reading, when it is due."""
    clock.forward(seconds=40)
    assert polling.due() == [source.pk]
    assert polling.tick(source.pk)
    source.refresh_from_db()
    return source


def device(uuid):
    return GpuDevice.objects.select_related("node").get(uuid=uuid)


def test_a_reading_is_stored_with_what_it_was_like(source, clock):
    assert again(source, clock).state == State.WELL
    assert (source.devices, source.series, source.asked, source.unanswered, source.sentence) == (3, 6, 2, 0, "")
    assert (source.read_at, source.ticks, source.failures, source.claimed_until) == (clock.at, 1, 0, None)
    held, free = device("GPU-1"), device("GPU-2")
    assert (held.node.name, held.index, held.model, held.driver) == ("n1", "0", "NVIDIA H100 80GB HBM3", "570.86.15")
    assert held.values == {"busy": 0.9, "power": 400}
    assert (held.holders, held.held_since) == ([["team", "trainer-0", "main"]], clock.at)
    assert (free.values["busy"], free.holders, free.held_since) == (0, [], None)


def test_what_is_not_said_is_absent_and_never_zero(source, world, clock):
    world.gpus["n1"][0].busy = None
    again(source, clock)
    assert device("GPU-1").value("busy") is None
    assert device("GPU-2").value("busy") == 0


def test_two_at_once_read_once(source, world, clock, monkeypatch):
    real, second = polling.read, []

    def meanwhile(*arguments):
        second.append((polling.due(), polling.tick(source.pk)))
        return real(*arguments)

    monkeypatch.setattr(polling, "read", meanwhile)
    assert polling.tick(source.pk)
    assert second == [([], False)]
    assert sorted(world.asked) == ["n1", "n2"]
    assert not polling.tick(source.pk)  # not due again yet
    source.refresh_from_db()
    assert source.ticks == 1


def test_a_worker_that_is_killed_costs_one_claim(source, clock, monkeypatch):
    monkeypatch.setattr(devices, "SLICE", 1)
    real, slices = devices.Statement.run, []

    def killed(statement, rows):
        if slices:
            raise KeyboardInterrupt
        slices.append(rows)
        real(statement, rows)

    with monkeypatch.context() as patch:
        patch.setattr(devices.Statement, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            polling.tick(source.pk)
    assert GpuDevice.objects.count() == 1
    assert polling.due() == []
    clock.forward(seconds=polling.CLAIM.total_seconds() + 1)
    assert polling.due() == [source.pk]
    assert polling.tick(source.pk)
    assert GpuDevice.objects.count() == 3


def test_a_source_that_is_changed_meanwhile_stores_nothing_of_before(source, clock, monkeypatch):
    real = polling.read

    def meanwhile(*arguments):
        TelemetrySource.objects.filter(pk=source.pk).update(claimed_until=None, due_at=clock.at, version=2)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(polling, "read", meanwhile)
        assert not polling.tick(source.pk)
    assert not GpuDevice.objects.exists()
    source.refresh_from_db()
    assert (source.state, source.ticks) == (State.NEVER, 0)
    assert polling.due() == [source.pk]


def test_half_of_the_exporters_away_leaves_the_rest_true(source, world, clock):
    again(source, clock)
    before = clock.at
    world.refusing["n2"], world.gpus["n1"][0].busy = 500, 10
    again(source, clock)
    assert (source.state, source.unanswered, source.read_at) == (State.PARTLY, 1, clock.at)
    assert source.sentence == f"1 of 2 exporters returned nothing. {NAMESPACE}/dcgm-n2: The exporter answered 500."
    gone = device("GPU-3")
    assert (gone.values["busy"], gone.seen_at, gone.missing_since) == (0.5, before, clock.at)
    assert gone.age(source) == HALF_A_MINUTE
    assert device("GPU-1").values["busy"] == 0.1
    assert GpuDevice.objects.seen().count() == 2
    world.refusing.clear()
    again(source, clock)
    assert (source.state, device("GPU-3").missing_since) == (State.WELL, None)


def test_labels_that_no_database_stores_cost_only_themselves(source, world, clock):
    long, bad = "GPU-" + "7" * 100, "\0\u2028"
    gpus = [Gpu(f"{long}1"), Gpu(f"{long}2"), Gpu("GPU-\0"), Gpu("GPU-4", holder=(f"team{bad}", f"pod{bad}"))]
    world.node("n3", *gpus)
    assert again(source, clock).state == State.WELL
    assert sorted(GpuDevice.objects.values_list("uuid", flat=True)) == ["GPU-1", "GPU-2", "GPU-3", "GPU-4"]
    assert device("GPU-4").holders == [["team··", "pod··", "main"]]
    assert ["no_device", 6] in [finding[:2] for finding in source.findings]


def test_what_cannot_be_stored_is_said_and_tried_again(source, clock, monkeypatch):
    def refuse(*_, **__):
        raise DataError("integer out of range")

    monkeypatch.setattr(devices, "store", refuse)
    assert again(source, clock).state == State.FAILED
    assert "while it stored this" in source.sentence
    assert (source.claimed_until, source.read_at, source.failures) == (None, None, 1)
    monkeypatch.undo()
    clock.forward(minutes=2)
    assert again(source, clock).state == State.WELL


def test_a_cluster_that_does_not_answer_leaves_all_as_it_was(source, world, clock):
    again(source, clock)
    read_at = source.read_at
    world.cluster.faults.outage = True
    again(source, clock)
    assert (source.state, source.failures, source.read_at) == (State.FAILED, 1, read_at)
    assert "could not be listed" in source.sentence
    assert GpuDevice.objects.seen().count() == 3
    clock.forward(seconds=300)
    assert not TelemetrySource.objects.get().is_current


def test_missing_rights_are_said_with_what_mends_them_and_asked_for_once(source, world, clock):
    for number in range(60):
        world.node(f"more-{number}", Gpu(f"GPU-m{number}"))
    world.cluster.api.forbidden.add(("get", "pods/proxy"))
    assert again(source, clock).state == State.FAILED
    assert "pods/proxy" in source.sentence
    assert exporters.MEND in source.sentence
    assert source.unanswered == 62
    assert world.fleet.calls["get", "pods/proxy"] < 62
    assert not GpuDevice.objects.exists()


def test_a_cluster_without_exporters_is_no_failure(clock):
    world = Exporting()
    world.cluster.add_node("n1", gpus=8)
    cluster = ClusterFactory(uid=world.cluster.uid)
    store.observe_nodes(cluster, world.fleet.list("nodes").items, complete=True)
    polling.reconcile()
    source = cluster.telemetry
    with registry.override(cluster.pk, world.fleet):
        assert polling.tick(source.pk)
    source.refresh_from_db()
    assert source.state == State.EMPTY
    assert "no exporter of GPU metrics, though its nodes have 8 GPUs" in source.sentence
    clock.forward(seconds=60)
    assert polling.due() == []


def test_a_pod_elsewhere_that_calls_itself_an_exporter_is_not_asked(source, world, clock):
    world.gpus["n3"] = [Gpu("GPU-1", busy=0)]
    world.cluster.add_node("n3")
    labels = {"app.kubernetes.io/name": "dcgm-exporter"}
    world.cluster.add_pod("mine", node="n3", namespace="tenant", labels=labels)
    TelemetrySource.objects.update(namespace=NAMESPACE)
    assert again(source, clock).state == State.WELL
    assert sorted(world.asked) == ["n1", "n2"]
    TelemetrySource.objects.update(namespace="")
    assert again(source, clock).asked == 3


def test_a_gpu_that_is_put_into_another_node_moves_there(source, world, clock):
    again(source, clock)
    moved = world.gpus["n1"].pop(0)
    world.gpus["n2"].append(moved)
    again(source, clock)
    assert (device("GPU-1").node.name, device("GPU-1").index) == ("n2", "1")
    assert GpuDevice.objects.count() == 3


def test_since_when_a_pod_holds_a_gpu_outlives_readings_and_ends_with_the_pod(source, world, clock):
    again(source, clock)
    first = clock.at
    again(source, clock)
    assert device("GPU-1").held_since == first
    world.gpus["n1"][0].holder = ("team", "trainer-1")
    again(source, clock)
    assert device("GPU-1").held_since == clock.at
    world.gpus["n1"][0].holder = None
    again(source, clock)
    assert (device("GPU-1").held_since, device("GPU-1").holders) == (None, [])


def test_rows_are_written_where_something_changed_and_now_and_then(source, world, clock):
    again(source, clock)
    first = clock.at
    world.gpus["n1"][0].power, world.gpus["n2"][0].power = 401.0, 500.0
    again(source, clock)
    assert (device("GPU-1").seen_at, device("GPU-1").values["power"]) == (first, 400)
    assert device("GPU-1").age(source) == timedelta(0)
    assert (device("GPU-3").seen_at, device("GPU-3").values["power"]) == (clock.at, 500)
    clock.forward(seconds=devices.REFRESH_AFTER.total_seconds())
    again(source, clock)
    assert device("GPU-1").values["power"] == 401


def test_a_gpu_that_was_taken_out_is_forgotten_in_the_end(source, world, clock):
    again(source, clock)
    world.gpus["n2"].clear()
    again(source, clock)
    clock.forward(days=devices.FORGET_AFTER.days, seconds=60)
    again(source, clock)
    assert not GpuDevice.objects.filter(uuid="GPU-3").exists()
    assert GpuDevice.objects.count() == 2


def test_beat_reads_what_is_due_and_a_full_process_drops_it(source, monkeypatch):
    sent = []
    monkeypatch.setattr(tasks.read, "apply_async", lambda arguments, **_: sent.append(arguments))
    tasks.tick()
    assert sent == [(source.pk,)]
    for _ in range(tasks.READINGS_AT_ONCE):
        assert tasks.readings.acquire(blocking=False)
    try:
        tasks.read(source.pk)
    finally:
        tasks.readings.release(tasks.READINGS_AT_ONCE)
    assert TelemetrySource.objects.get().ticks == 0
    tasks.read(source.pk)
    assert TelemetrySource.objects.get().ticks == 1
