"""Roles, stages and replicas: what differs by its work is not called slow, and what is slow within its role is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clusters.inventory import store
from clusters.models import GpuJob, JobPod, Node
from common.clock import now
from gpus.models import GpuPacked, NodePace
from gpus.peers import comparison, job
from gpus.peers.comparison import JOB, NAMESPACE, REPLICAS, Day, Work
from gpus.peers.roles import Roles
from gpus.storage import codec
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.gpus.paced import Paced, Truth

AT = datetime(2026, 11, 20, tzinfo=UTC)


def paced(truth: Truth, hours: int = 6) -> dict[str, comparison.PeerComparison]:
    day = Day(truth.work_of)
    for back in range(hours, 0, -1):
        start = AT + timedelta(hours=24 - back)
        day.add(start, truth.hour(start, back))
    return {name: day.pace(name) for name in truth.names}


def slower(truth: Truth) -> set[str]:
    return {name for name, pace in paced(truth).items() if pace.is_slower}


# ── a role is held against itself ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("kind", ["JobSet", "PyTorchJob", "RayJob", "Volcano Job", "TrainingJob"])
def test_a_role_with_less_to_do_is_not_slow_and_a_slow_node_of_a_role_is_found(kind):
    truth = Truth(14)
    truth.kinds["team/train"] = kind
    for number, name in enumerate(truth.names):
        truth.roles[name] = "worker" if number < 8 else "evaluator"
        truth.waits[name] = 0.95 if number < 8 else 0.3
    assert slower(truth) == set()
    truth.waits["n0003"] = 0.5  # more than an evaluator has to do, and far below a worker
    truth.waits["n0010"] = 0.12
    paces = paced(truth)
    assert {name for name, pace in paces.items() if pace.is_slower} == {"n0003", "n0010"}
    assert (paces["n0003"].role, paces["n0003"].peers, paces["n0003"].in_common) == ("worker", 7, JOB)
    assert (paces["n0010"].role, paces["n0010"].peers) == ("evaluator", 5)


def test_unequal_stages_of_a_pipeline_are_not_slow_where_pods_name_them():
    truth = Truth(20)
    for number, name in enumerate(truth.names):
        truth.roles[name] = f"worker, stage {number % 4}"
        truth.waits[name] = 0.95 if number % 4 else 0.7
    assert slower(truth) == set()
    truth.waits["n0004"] = 0.5
    assert slower(truth) == {"n0004"}
    truth.roles = dict.fromkeys(truth.names, "worker")  # a stage that is not named cannot be told from a slow node
    assert {"n0000", "n0008"} < slower(truth)


def test_pods_that_hold_fewer_gpus_are_no_peers_of_those_that_hold_more():
    truth = Truth(12, gpus=4)
    for name in truth.names[8:]:
        truth.pod_gpus[name], truth.waits[name] = 1, 0.5
    paces = paced(truth)
    assert not any(pace.is_slower for pace in paces.values())
    assert (paces["n0000"].pod_gpus, paces["n0000"].peers) == (4, 7)
    assert (paces["n0008"].is_compared, paces["n0008"].pod_gpus, paces["n0008"].peers) == (False, 1, 3)


def test_a_pod_without_a_role_is_no_peer_of_those_that_have_one():
    truth = Truth(9)
    truth.roles = dict.fromkeys(truth.names[:5], "worker")
    for name in truth.names[5:]:
        truth.waits[name] = 0.4
    paces = paced(truth)
    assert not any(pace.is_slower for pace in paces.values())
    assert {paces[name].peers for name in truth.names[:5]} == {4}
    assert [(paces[name].is_compared, paces[name].peers) for name in truth.names[5:]] == [(False, 3)] * 4


def test_a_role_with_too_few_members_has_no_verdict_and_says_whose_it_is():
    truth = Truth(10)
    truth.roles = dict.fromkeys(truth.names, "workers")
    truth.roles["n0000"] = "driver"
    truth.waits["n0000"] = 0.1
    pace = paced(truth)["n0000"]
    assert (pace.is_compared, pace.is_slower, pace.hours) == (False, False, 6)
    assert (pace.in_common, pace.work, pace.role, pace.peers) == (JOB, "team/train", "driver", 0)


# ── replicas have the load that they are given ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "kind", ["Deployment", "StatefulSet", "LeaderWorkerSet", "RayService", "RayCluster", "Something new", ""]
)
def test_a_replica_with_less_load_is_not_slow_and_one_with_low_clocks_is(kind):
    truth = Truth(10)
    truth.kinds["team/train"] = kind
    truth.waits["n0001"] = truth.waits["n0002"] = 0.3
    truth.waits["n0003"] = 0.82
    truth.slow["n0004"], truth.watts["n0004"] = 0.7, 450.0
    truth.slow["n0005"], truth.watts["n0005"] = 0.7, 690.0  # more power, lower clocks: a heavier load
    paces = paced(truth)
    assert {name for name, pace in paces.items() if pace.is_slower} == {"n0004"}
    assert paces["n0004"].in_common == REPLICAS
    assert not paces["n0001"].is_compared  # its clock says nothing, for it is not busy


def test_jobs_of_one_node_are_compared_in_their_namespace_within_one_role():
    truth = Truth(11)
    for number, name in enumerate(truth.names):
        truth.work[name] = f"team/own{number}job"
        truth.roles[name] = "master" if number < 6 else "chief"
    truth.slow["n0001"], truth.watts["n0001"] = 0.7, 500.0
    for name in truth.names[6:]:
        truth.slow[name], truth.watts[name] = 0.6, 400.0  # all chiefs: what they run is slow, no node
    paces = paced(truth)
    assert {name for name, pace in paces.items() if pace.is_slower} == {"n0001"}
    assert (paces["n0001"].in_common, paces["n0001"].work, paces["n0001"].role) == (NAMESPACE, "team", "master")


@pytest.mark.parametrize("role", ["worker, stage {}", "stage {}"])
def test_a_stage_of_its_own_hides_no_node_from_its_namespace(role):
    truth = Truth(11)
    for number, name in enumerate(truth.names):
        truth.roles[name] = role.format(number)
        truth.waits[name] = 0.95 if number % 2 else 0.85
    truth.roles["n0010"] = "driver, stage 1"
    truth.slow["n0001"], truth.watts["n0001"] = 0.7, 500.0
    paces = paced(truth)
    assert {name for name, pace in paces.items() if pace.is_slower} == {"n0001"}
    slow = paces["n0001"]
    assert (slow.in_common, slow.role, slow.peers) == (NAMESPACE, role.partition("stage")[0].strip(", "), 9)
    assert not paces["n0010"].is_compared


def test_two_jobs_of_one_name_are_two():
    """A job that was made again keeps its pods' names; a day has hours of both."""
    day, keys = Day(lambda _holder, node, _hour: Work(keys[node], "team/a", is_in_step=True)), {}
    truth = Truth(10)
    for number, name in enumerate(truth.names):
        keys[name] = "old" if number < 5 else "new"
        truth.waits[name] = 0.95 if number < 5 else 0.4
    for back in range(3):
        day.add(AT + timedelta(hours=back), truth.hour(AT, 1))
    assert not any(day.pace(name).is_slower for name in truth.names)


# ── whose pod it was ──────────────────────────────────────────────────────────────────────────────────────────────────
def lived(cluster, key, *pods, kind="JobSet", ended_at=None):
    return GpuJob.objects.create(
        cluster=cluster, key=key, namespace="team", name="train", kind=kind, queued_at=AT, ended_at=ended_at,
        pods=GpuJob.stored(list(pods)), roles=GpuJob.stored_roles(list(pods)),
    )  # fmt: skip


def pod(node, begin, end, role="worker", *, gpus=8, name="train-w-0"):
    hours = [None if hour is None else int((AT + timedelta(hours=hour)).timestamp()) for hour in (begin, end)]
    return JobPod(f"{node}-{begin}", name, node, gpus, hours[0], hours[0], hours[1], "", 0, role)


@pytest.mark.django_db
def test_the_pod_that_lived_in_the_hour_on_the_node_tells_the_work(django_assert_num_queries):
    cluster, other = ClusterFactory(), ClusterFactory()
    lived(cluster, "first", pod("n1", 0, 10), pod("n2", 2, 10, "driver", gpus=1), ended_at=AT + timedelta(hours=10))
    lived(cluster, "second", pod("n1", 10.25, None, "chief"), kind="Deployment")
    lived(other, "theirs", pod("n1", 0, None, "theirs"))
    lived(cluster, "too-old", pod("n1", -30, -20), ended_at=AT - timedelta(hours=20))
    with django_assert_num_queries(1):
        known = Roles(cluster.pk, AT)

    def work(node, hour, holder="team/train-w-0"):
        return known.of(holder, node, AT + timedelta(hours=hour))

    assert work("n1", 3) == Work("first", "team/train", "worker", 8, is_in_step=True)
    assert work("n2", 3) == Work("first", "team/train", "driver", 1, is_in_step=True)
    assert work("n1", 10) == Work("second", "team/train", "chief", 8, is_in_step=False)
    unknown = Work("team/train-w", "team/train-w")
    for place in (("n1", -2), ("n2", 12), ("n3", 3)):
        assert work(*place) == unknown
    assert work("n1", 3, "team/train-w-9") == unknown
    assert work("n1", 3, "lab/train-w-0") == Work("lab/train-w", "lab/train-w")


@pytest.mark.django_db
def test_pods_of_rows_that_were_written_before_roles_are_read():
    cluster = ClusterFactory()
    lived(cluster, "before", pod("n1", 0, None))
    GpuJob.objects.update(roles={})
    assert Roles(cluster.pk, AT).of("team/train-w-0", "n1", AT).role == ""


# ── from the API server's pods to the page and REST ───────────────────────────────────────────────────────────────────
def jobset_pod(number: int, node: str, replicated_job: str, index: int) -> dict[str, object]:
    """A pod as JobSet 0.8 and the Job controller make it: its name ends in an index and five letters."""
    made = now() - timedelta(hours=20)
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/jobset-uid": "u-llm",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated_job, "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": str(index),
    }  # fmt: skip
    name = f"llm-{replicated_job}-0-{index}-{'bcdfghjklm'[number % 10]}w{'2456789bcd'[number // 10]}xz"
    owner = {"kind": "Job", "name": f"llm-{replicated_job}-0", "uid": f"u-{replicated_job}", "controller": True}
    return {
        "metadata": {
            "name": name, "namespace": "team", "uid": f"u-{number}", "resourceVersion": str(number + 1),
            "creationTimestamp": f"{made:%Y-%m-%dT%H:%M:%SZ}", "labels": labels, "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        "status": {"phase": "Running", "startTime": f"{made:%Y-%m-%dT%H:%M:%SZ}"},
    }  # fmt: skip


@pytest.fixture
def llm(clock):
    """A JobSet on nine nodes: a driver, which waits, and eight workers, of which one is slow."""
    clock.at = clock.at.replace(minute=30)
    truth = Truth(9)
    truth.waits["n0000"] = 0.2
    truth.slow["n0005"] = 0.75
    world = Paced(truth)
    pods = {
        name: jobset_pod(n, name, *(("workers", n - 1) if n else ("driver", 0))) for n, name in enumerate(truth.names)
    }
    store.observe_pods(world.cluster, list(pods.values()), complete=True, at=now())
    end = now().replace(minute=0, second=0, microsecond=0)
    for back in range(1, 7):
        start = end - timedelta(hours=back)
        rows = [
            (device, bucket._replace(holder=f"team/{pods[device.node_name]['metadata']['name']}"))
            for device, bucket in truth.hour(start, back)
        ]
        GpuPacked.objects.create(
            cluster=world.cluster, seconds=3600, start=start, of=1, shard=0, data=codec.pack(iter(rows))
        )
    world.paces = world.look()
    return world


@pytest.mark.django_db
def test_a_jobset_is_compared_by_replicated_job(llm):
    assert {name: row.verdict for name, row in llm.paces.items()} == {
        "n0000": "few", "n0005": "slower", **{f"n000{n}": "level" for n in (1, 2, 3, 4, 6, 7, 8)},
    }  # fmt: skip
    slow, driver = llm.paces["n0005"], llm.paces["n0000"]
    assert (slow.work, slow.role, slow.pod_gpus, slow.peers, slow.in_common) == ("team/llm", "workers", 2, 7, "job")
    assert (driver.work, driver.role, driver.peers) == ("team/llm", "driver", 0)


@pytest.mark.django_db
def test_rest_and_pages_say_the_role_and_why_there_is_no_verdict(llm, client):
    rows = TokenClient(UserFactory(is_superuser=True)).get("/api/v1/gpus/paces?limit=100").json()["results"]
    by_name = {row["node_name"]: row for row in rows}
    why = (
        "At work for 6 hours at team/llm as driver with 2 GPUs a pod: 0 other nodes with the same GPUs did the same; "
        "4 are needed."
    )
    assert (by_name["n0000"]["verdict"], by_name["n0000"]["role"], by_name["n0000"]["reason"]) == ("few", "driver", why)
    assert (by_name["n0005"]["reason"], by_name["n0005"]["pod_gpus"]) == ("", 2)
    client.force_login(UserFactory(is_superuser=True))
    page = client.get("/gpus/slower/").content.decode()
    assert why in page
    assert "7 peers at the job team/llm as workers with 2 GPUs a pod" in page
    node = client.get(f"/nodes/{Node.objects.get(name='n0000').pk}/").content.decode()
    assert why in node
    pk = GpuJob.objects.get().pk
    detail = TokenClient(UserFactory(is_superuser=True)).get(f"/api/v1/gpus/jobs/{pk}").json()
    assert {part["node_name"]: part["not_compared"] for part in detail["nodes"]}["n0000"] == why
    assert {part["role"] for part in detail["pods"]} == {"driver", "workers"}
    assert why in client.get(f"/gpus/jobs/{pk}/").content.decode()


@pytest.mark.django_db
def test_the_pace_of_a_node_at_another_job_is_not_shown_as_that_of_this_one(llm):
    NodePace.objects.filter(node__name="n0005").update(work="team/other")
    api = TokenClient(UserFactory(is_superuser=True))
    detail = api.get(f"/api/v1/gpus/jobs/{GpuJob.objects.get().pk}").json()
    assert {part["node_name"]: part["is_slower"] for part in detail["nodes"]}["n0005"] is None


@pytest.mark.django_db
def test_slower_by_its_load_alone_is_said_with_what_looks_the_same(clock):
    clock.at = clock.at.replace(minute=30)
    truth = Truth(8)
    truth.waits["n0001"] = 0.6
    truth.slow["n0002"] = 0.7
    world = Paced(truth)
    world.record()
    world.look()
    rows = TokenClient(UserFactory(is_superuser=True)).get("/api/v1/gpus/paces?limit=100").json()["results"]
    cautions = {row["node_name"]: row["caution"] for row in rows}
    assert "pipeline stage" in cautions["n0001"]
    assert "setpoint.dev/pipeline-stage" in cautions["n0001"]
    assert {text for name, text in cautions.items() if name != "n0001"} == {""}  # a low clock is no stage's


@pytest.mark.django_db
def test_of_replicas_that_are_not_busy_enough_the_page_says_that_loads_differ(clock):
    clock.at = clock.at.replace(minute=30)
    truth = Truth(8)
    truth.kinds["team/train"] = "Deployment"
    truth.waits = dict.fromkeys(truth.names, 0.4)
    world = Paced(truth)
    world.record()
    assert {row.verdict for row in world.look().values()} == {"few"}
    rows = TokenClient(UserFactory(is_superuser=True)).get("/api/v1/gpus/paces?limit=100").json()["results"]
    assert {row["peers"] for row in rows} == {7}
    assert all("replicas may have different loads" in row["reason"] for row in rows)
    assert job.due() == []
