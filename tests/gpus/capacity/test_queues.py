"""Queues over time: every wait is counted once, for as long as the schedulers' own events say; and who would start."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from clusters.connection import registry
from clusters.fleet import NotFound
from clusters.models import GpuJob, GpuPod, Node
from gpus.capacity import pending, queue_report
from gpus.models import IdleHolding, QueueStep, TelemetrySource, Waiting, WorkloadWait
from gpus.reports import ranges
from gpus.storage import retention
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

GPU = "nvidia.com/gpu"


def stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


class Objects:
    """The API server's lists of schedulers' objects."""

    def __init__(self) -> None:
        self.lists: dict[str, dict[str, dict]] = {
            plural: {} for plural in ("workloads", "clusterqueues", "localqueues")
        }

    def custom(self, api_version: str, plural: str) -> list[dict]:
        if plural not in self.lists or not api_version.endswith("v1beta2"):
            raise NotFound(f"{plural} of {api_version}")
        return copy.deepcopy([*self.lists[plural].values()])


class World:
    """A cluster whose schedulers' objects the test writes as their controllers do, and a clock between readings."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.fleet = Objects()
        self.cluster = ClusterFactory(name="atlas")
        for number, held in enumerate((8, 8)):
            Node.objects.create(
                cluster=self.cluster, uid=f"u{number}", name=f"n{number}", is_ready=True, gpu_count=8,
                gpu_allocated=held, gpu_product="NVIDIA-H100-80GB-HBM3",
            )  # fmt: skip
        self.client = Client()
        self.client.force_login(UserFactory(is_superuser=True))
        self.put("localqueues", "team", namespace="ml", spec={"clusterQueue": "batch"})
        quota = {"name": GPU, "nominalQuota": "8"}
        groups = [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [quota]}]}]
        self.put("clusterqueues", "batch", spec={"resourceGroups": groups}, status={"flavorsReservation": []})

    def put(self, plural: str, name: str, *, namespace: str = "", **body) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": f"{plural}-{name}"}
        metadata["creationTimestamp"] = stamp(body.pop("created", None) or self.clock.at)
        self.fleet.lists[plural][name] = {"metadata": metadata, **body}

    def workload(self, name: str, *, gpus: int = 4, created: datetime | None = None, **spec) -> None:
        containers = [{"name": "main", "resources": {"requests": {GPU: str(gpus)}}}]
        sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}]
        spec = {"queueName": "team", "podSets": sets, **spec}
        self.put("workloads", name, namespace="ml", created=created, spec=spec, status={})

    def change(self, name: str, **status) -> None:
        self.fleet.lists["workloads"][name]["status"].update(status)

    def delete(self, name: str) -> dict:
        return self.fleet.lists["workloads"].pop(name)

    def conditions(self, name: str, *rows: tuple[str, bool, datetime, str]) -> None:
        listed = [
            {"type": kind, "status": str(is_true), "lastTransitionTime": stamp(at), "reason": reason, "message": ""}
            for kind, is_true, at, reason in rows
        ]
        self.change(name, conditions=listed)

    def read(self) -> Waiting:
        pending.reconcile()
        (row,) = Waiting.objects.all()
        Waiting.objects.update(due_at="2020-01-01T00:00Z")
        with registry.override(self.cluster.pk, self.fleet):
            assert pending.refresh(row.pk)
        row.refresh_from_db()
        return row

    def waits(self, name: str) -> list[WorkloadWait]:
        return list(WorkloadWait.objects.filter(name=name).order_by("number"))


@pytest.fixture
def world(db, clock):
    return World(clock)


def test_a_preempted_workload_has_two_waits_and_each_as_long_as_its_conditions_say(world):
    begin = world.clock.at
    world.workload("train")
    world.read()
    (wait,) = world.waits("train")
    assert (wait.queue, wait.local_queue, wait.gpus, wait.is_waiting) == ("batch", "team", 4, True)
    admitted, evicted = begin + timedelta(minutes=7), begin + timedelta(minutes=30)
    world.clock.forward(minutes=10)
    world.conditions("train", ("Admitted", True, admitted, "Admitted"), ("PodsReady", True, admitted, "Started"))
    world.read()
    world.clock.forward(minutes=25)
    # Beside the eviction the old admission is True until its pods are stopped.
    world.conditions("train", ("Admitted", True, admitted, ""), ("Evicted", True, evicted, "Preempted"))
    world.read()
    world.read()
    first, second = world.waits("train")
    assert (first.admitted_at, first.running_at, first.ended_at) == (admitted, admitted, evicted)
    assert (first.outcome, first.reason, first.evictions, first.is_present) == ("evicted", "Preempted", 1, False)
    assert (second.queued_at, second.admitted_at, second.is_waiting) == (evicted, None, True)
    again = begin + timedelta(minutes=50)
    world.clock.forward(minutes=20)
    world.conditions("train", ("Evicted", False, again, "QuotaReserved"), ("Admitted", True, again, ""))
    world.read()
    _, second = world.waits("train")
    assert second.waited == 20 * 60
    world.delete("train")
    world.read()
    assert [wait.outcome for wait in world.waits("train")] == ["evicted", "removed"]


def test_what_came_and_went_between_two_readings_is_counted_and_its_length_is_not_made_up(world):
    begin = world.clock.at
    world.workload("train")
    world.conditions("train", ("Admitted", True, begin, ""))
    world.read()
    world.clock.forward(minutes=60)
    again = begin + timedelta(minutes=50)
    evictions = [{"reason": "Preempted", "underlyingCause": "", "count": 3}]
    world.change("train", schedulingStats={"evictions": evictions})
    world.conditions("train", ("Evicted", False, again, "QuotaReserved"), ("Admitted", True, again, ""))
    world.read()
    first, second = world.waits("train")
    assert (first.reason, first.evictions, first.ended_at) == ("Preempted", 3, begin)
    assert (second.admitted_at, second.is_measured) == (again, False)


def test_kinds_that_are_not_served_for_a_while_lose_and_double_nothing(world):
    world.workload("train")
    world.read()
    raw = world.delete("train")
    world.clock.forward(minutes=1)
    world.read()
    assert world.waits("train")[0].outcome == "removed"
    world.fleet.lists["workloads"]["train"] = raw
    world.read()
    (wait,) = world.waits("train")
    assert (wait.outcome, wait.ended_at, wait.is_present) == ("", None, True)


def test_ten_hours_of_random_lives_are_recomputed_by_other_code(world):
    """Play random lives of workloads, read now and then, and hold the rows against the events themselves."""
    chance, events, begin = random.Random(7), defaultdict(list), world.clock.at
    names = [f"w{number}" for number in range(12)]
    state = {}
    for minute in range(0, 600, 5):
        at = begin + timedelta(minutes=minute)
        world.clock.at = at
        for name in names:
            phase, admitted = state.get(name, ("new", None))
            draw = chance.random()
            if phase == "new" and draw < 0.2:
                world.workload(name, gpus=chance.choice([1, 4, 8]))
                state[name] = ("waiting", None)
                events[name].append(("queued", at))
            elif phase == "waiting" and draw < 0.15:
                world.conditions(name, ("Evicted", False, at, "QuotaReserved"), ("Admitted", True, at, ""))
                state[name] = ("running", at)
                events[name].append(("admitted", at))
            elif phase == "waiting" and draw < 0.17:
                world.delete(name)
                state[name] = ("gone", None)
                events[name].append(("gone", at))
            elif phase == "running" and draw < 0.08:
                world.conditions(name, ("Evicted", True, at, "Preempted"), ("Admitted", False, at, "NoReservation"))
                state[name] = ("waiting", None)
                events[name].append(("evicted", at))
            elif phase == "running" and draw < 0.15:
                world.conditions(name, ("Admitted", True, admitted, ""), ("Finished", True, at, "Succeeded"))
                state[name] = ("done", None)
                events[name].append(("finished", at))
        world.read()
    assert sum(kind == "evicted" for rows in events.values() for kind, _ in rows) > 3
    for name in names:
        expected, queued, admitted = [], None, None
        for kind, at in events[name]:
            if kind == "queued":
                queued = at
            elif kind == "admitted":
                admitted = at
            elif kind == "gone":  # of one that waited nothing is known since the reading before
                expected.append((queued, admitted, max(queued, at - timedelta(minutes=5)), "removed"))
                queued, admitted = None, None
            else:
                expected.append((queued, admitted, at, kind))
                queued, admitted = (at, None) if kind == "evicted" else (None, None)
        if queued:
            expected.append((queued, admitted, None, ""))
        rows = [(row.queued_at, row.admitted_at, row.ended_at, row.outcome) for row in world.waits(name)]
        assert rows == expected
        assert all(row.is_measured for row in world.waits(name))


def test_pods_without_a_queue_wait_for_the_scheduler_and_count_once_where_a_gang_has_them(world):
    begin = world.clock.at
    made = {"cluster": world.cluster, "namespace": "ml", "gpus": 1, "created_at": begin}
    GpuPod.objects.create(uid="p1", name="notebook", **made)
    GpuPod.objects.create(uid="p2", name="train-0", owner_kind="Job", owner_name="train", job_name="train", **made)
    world.workload("job-train")
    world.read()
    assert [row.uid for row in WorkloadWait.objects.filter(system="pods").order_by("uid")] == ["p1", "p2"]
    WorkloadWait.objects.filter(system="pods").delete()
    owner = {"controller": True, "kind": "Job", "name": "train", "uid": "j1"}
    world.fleet.lists["workloads"]["job-train"]["metadata"]["ownerReferences"] = [owner]
    world.read()
    (row,) = WorkloadWait.objects.filter(system="pods")
    GpuPod.objects.filter(uid="p1").update(node_name="n0", started_at=begin + timedelta(minutes=3))
    world.clock.forward(minutes=9)
    world.read()
    row.refresh_from_db()
    assert row.waited == 180
    GpuPod.objects.filter(uid="p1").delete()
    world.read()
    row.refresh_from_db()
    assert (row.outcome, row.is_present) == ("finished", False)


# ── Figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_page_rest_file_and_job_have_the_same_waits(world):
    begin = world.clock.at
    job = GpuJob.objects.create(
        cluster=world.cluster, key="k1", namespace="ml", kind="Job", name="train", queued_at=begin
    )
    for number, (gpus, minutes) in enumerate(((1, 2), (4, 10), (16, None), (128, 40))):
        admitted = None if minutes is None else begin + timedelta(minutes=minutes)
        WorkloadWait.objects.create(
            cluster=world.cluster, system="kueue", uid=f"u{number}", number=1, kind="Workload", namespace="ml",
            name=f"=w{number}", queue="batch", gpus=gpus, pods=[[1, gpus]], created_at=begin, queued_at=begin,
            admitted_at=admitted, job_key="k1" if number == 1 else "",
        )  # fmt: skip
    WorkloadWait.objects.filter(uid="u0").update(
        outcome="evicted", reason="Preempted", evictions=2, ended_at=begin + timedelta(minutes=20)
    )
    world.clock.forward(minutes=60)
    Waiting.objects.create(cluster=world.cluster)
    answer = world.client.get("/api/v1/gpus/queues?window=6h&compare=before").json()
    assert answer["waits"] == {
        "count": 4,
        "admitted": 3,
        "p50": {"seconds": 600.0, "is_least": False},
        "p90": {"seconds": 3600.0, "is_least": True},
        "longest": {"seconds": 3600.0, "is_least": True},
    }
    assert [row["waits"]["count"] for row in answer["sizes"]] == [1, 1, 1, 1]
    (line,) = answer["queues"]
    assert (line["waiting"], line["waiting_gpus"], line["longest_waiting_seconds"], line["evictions"]) == (
        1,
        16,
        3600,
        2,
    )
    assert answer["evictions"][0]["reason"] == "Preempted"
    page = world.client.get("/gpus/queues/?window=6h&compare=before")
    assert page.status_code == 200
    text = " ".join(page.content.decode().split())
    assert "10 min" in text
    assert "Preempted" in text
    listed = world.client.get("/api/v1/gpus/waits?queue=batch").json()["results"]
    assert {row["name"]: row["waited_seconds"] for row in listed}["=w1"] == 600
    body = b"".join(world.client.get("/gpus/queues/waits.csv?queue=batch").streaming_content).decode()
    assert "'=w1" in body
    detail = world.client.get(f"/api/v1/gpus/jobs/{job.pk}").json()
    assert [row["waited_seconds"] for row in detail["waits"]] == [600]
    assert "Waits in its queue" in world.client.get(f"/gpus/jobs/{job.pk}/").content.decode()
    for address in ("queues?cluster=none", "queues?nothing=1", "queues?window=5y", "queues/reclaim", "waits?system=x"):
        assert world.client.get(f"/api/v1/gpus/{address}").status_code in (400, 422), address
    assert world.client.get("/gpus/queues/?window=5y").status_code == 422


def test_twenty_thousand_waits_cost_the_same_queries_as_none(world, django_assert_max_num_queries):
    begin = world.clock.at
    Waiting.objects.create(cluster=world.cluster)
    WorkloadWait.objects.bulk_create(
        [
            WorkloadWait(
                cluster=world.cluster, system="kueue", uid=f"u{number}", number=1, kind="Workload", namespace="ml",
                name=f"w{number}", queue=f"q{number % 40}", gpus=1 + number % 99, pods=[[1, 1]], created_at=begin,
                queued_at=begin, admitted_at=None if number % 3 else begin + timedelta(seconds=number),
            )
            for number in range(20_000)
        ],
        batch_size=2000,
    )  # fmt: skip
    world.clock.forward(minutes=5)
    with django_assert_max_num_queries(16):
        assert world.client.get("/gpus/queues/?compare=before").status_code == 200
    with django_assert_max_num_queries(16):
        assert world.client.get(f"/gpus/queues/clusters/{world.cluster.pk}/reclaim/live/").status_code == 200


def test_what_a_reading_lacks_is_a_gap_and_a_late_reading_speaks_for_three_minutes(world):
    begin = world.clock.at
    world.workload("train", gpus=4)
    world.read()
    world.clock.forward(minutes=1)
    world.read()
    world.clock.forward(minutes=30)
    world.read()
    rows = QueueStep.objects.filter(queue="batch", seconds=300).order_by("start")
    assert [(row.start - begin, row.recorded) for row in rows] == [
        (timedelta(0), 60.0),
        (timedelta(minutes=25), 120.0),
        (timedelta(minutes=30), 60.0),
    ]
    assert [(row.quota / row.quota_recorded, row.pending_gpus / row.recorded) for row in rows] == [(8, 4)] * 3
    assert {row.idle_recorded for row in rows} == {0.0}  # no telemetry
    hour = QueueStep.objects.get(queue="batch", seconds=3600)
    assert hour.recorded == 240
    window = ranges.BANDS.preset("6h")
    points = queue_report.points(UserFactory(is_superuser=True), window, {world.cluster.pk: world.cluster}, "")
    assert {(point.quota, point.idle, point.pending) for point in points} == {(8.0, None, 4.0)}


def test_history_is_forgotten_in_time_and_never_of_what_is_there(world, settings):
    settings.SETPOINT_GPU_BAND_DAYS = 10
    world.workload("old")
    world.workload("there")
    world.read()
    long_ago = world.clock.at - timedelta(days=20)
    WorkloadWait.objects.update(queued_at=long_ago, ended_at=long_ago, outcome="finished")
    WorkloadWait.objects.filter(name="old").update(is_present=False)
    QueueStep.objects.create(cluster=world.cluster, system="kueue", queue="q", seconds=3600, start=long_ago)
    retention.forget_old()
    assert list(WorkloadWait.objects.values_list("name", flat=True)) == ["there"]
    assert not QueueStep.objects.filter(start=long_ago).exists()


def test_what_a_pod_holds_idle_lets_the_first_in_the_queue_start(world):
    begin = world.clock.at
    TelemetrySource.objects.create(cluster=world.cluster, read_at=begin)
    GpuPod.objects.create(
        cluster=world.cluster, uid="p1", namespace="ml", name="idle", node_name="n0", gpus=8, queue="team"
    )
    IdleHolding.objects.create(
        cluster=world.cluster, node_name="n0", namespace="ml", pod="idle", gpus=8, share=8, counted_until=begin,
        since=begin - timedelta(hours=2),
    )  # fmt: skip
    world.workload("first", gpus=8)
    world.workload("second", gpus=4, created=begin - timedelta(hours=1), priority=-5)
    world.read()
    answer = world.client.get("/api/v1/gpus/queues/reclaim?cluster=atlas").json()
    assert (answer["free"], answer["freed"], answer["gpus_started"], answer["has_telemetry"]) == (0, 8, 8, True)
    assert [(gang["name"], gang["starts"], gang["starts_now"]) for gang in answer["gangs"]] == [
        ("first", True, False),
        ("second", False, False),
    ]
    page = world.client.get(f"/gpus/queues/clusters/{world.cluster.pk}/reclaim/live/").content.decode()
    assert "ml/first" in page
