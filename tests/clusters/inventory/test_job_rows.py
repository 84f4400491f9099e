"""Lives of jobs, as their pods' changes tell them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clusters.inventory import job_owner, job_rows, store
from clusters.models import GpuJob, GpuPod
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db
T0 = datetime(2026, 11, 27, 8, tzinfo=UTC)
_versions = iter(range(1, 10**9))


def at(minutes):
    return T0 + timedelta(minutes=minutes)


def stamp(minutes):
    return f"{at(minutes):%Y-%m-%dT%H:%M:%SZ}"


def pod(
    name, *, created=0, running=None, node="n1", phase="", gpus=8, job="train", job_uid="u-train", restarts=0, **meta
):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job_uid, "controller": True}
    state = {} if running is None else {"running": {"startedAt": stamp(running)}}
    return {
        "metadata": {
            "name": name, "namespace": "research", "uid": f"uid-{name}", "resourceVersion": str(next(_versions)),
            "creationTimestamp": stamp(created), "ownerReferences": [owner], **meta,
        },
        "spec": {
            "nodeName": "" if running is None and not phase else node,
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {
            "phase": phase or ("Pending" if running is None else "Running"),
            "containerStatuses": [{"name": "c", "state": state, "restartCount": restarts}],
        },
    }  # fmt: skip


def ended(name, minutes, phase="Succeeded", **kwargs):
    raw = pod(name, phase=phase, **kwargs)
    raw["status"]["containerStatuses"][0]["state"] = {"terminated": {"finishedAt": stamp(minutes)}}
    return raw


@pytest.fixture
def cluster():
    return ClusterFactory()


def see(cluster, minutes, *raws, complete=False, deleted=()):
    store.observe_pods(cluster, list(raws), complete=complete, at=at(minutes), deleted=deleted)


def test_a_life_is_queued_then_starting_running_restarted_elsewhere_and_ended(cluster):
    see(cluster, 1, pod("a"), pod("b"))
    job = GpuJob.objects.get()
    assert (job.kind, job.name, job.namespace, job.state, job.gpus) == ("Job", "train", "research", "queued", 16)
    assert (job.queued_at, job.started_at, job.all_running_at) == (at(0), None, None)

    see(cluster, 11, pod("a", running=10))
    job = GpuJob.objects.get()
    assert (job.state, job.started_at, job.all_running_at) == ("starting", at(10), None)

    see(cluster, 21, pod("b", running=20, node="n2"))
    job = GpuJob.objects.get()
    assert (job.state, job.all_running_at, job.running_since, job.starts) == ("running", at(20), at(20), 1)

    see(cluster, 51, ended("b", 50, phase="Failed", node="n2"), pod("c", created=51))
    job = GpuJob.objects.get()
    assert (job.state, job.running_since, job.ran_seconds) == ("starting", None, 30 * 60)

    see(cluster, 61, pod("c", created=51, running=60, node="n3", restarts=2))
    job = GpuJob.objects.get()
    assert (job.state, job.starts, job.pods_seen, job.size, job.restarts) == ("running", 2, 3, 2, 2)
    assert {(p.name, p.node, p.outcome) for p in job.all_pods()} == {
        ("a", "n1", ""), ("b", "n2", "failed"), ("c", "n3", "")
    }  # fmt: skip

    see(cluster, 121, ended("a", 120), ended("c", 120, node="n3"))
    job = GpuJob.objects.get()
    assert (job.state, job.outcome, job.ended_at) == ("ended", "succeeded", at(120))
    assert job.ran_seconds == job.all_running_seconds(at(500)) == (30 + 60) * 60
    assert not GpuPod.objects.exists()


def test_the_same_name_with_a_new_uid_is_another_job_and_so_is_another_clusters(cluster):
    see(cluster, 1, pod("a", running=0))
    see(cluster, 10, deleted=[pod("a", running=0)])
    see(cluster, 20, pod("b", created=20, job_uid="u-again"))
    other = ClusterFactory()
    see(other, 20, pod("b", created=20))

    first, again = (job_owner.JobIdentity("Job", "train", uid).key("research") for uid in ("u-train", "u-again"))
    rows = GpuJob.objects.values_list("cluster", "key", "outcome")
    assert set(rows) == {(cluster.pk, first, "deleted"), (cluster.pk, again, ""), (other.pk, first, "")}


def test_a_pod_that_names_the_uid_of_a_job_in_another_namespace_joins_no_job_there(cluster):
    labels = {"jobset.sigs.k8s.io/jobset-name": "pre", "jobset.sigs.k8s.io/jobset-uid": "u-set"}
    see(cluster, 1, pod("a", running=0, labels=labels))
    see(cluster, 2, pod("b", running=0, labels=labels, namespace="elsewhere"))
    assert sorted(GpuJob.objects.values_list("namespace", "pods_seen")) == [("elsewhere", 1), ("research", 1)]


def test_a_rank_that_never_starts_keeps_the_job_from_running_at_all(cluster):
    see(cluster, 5, pod("a", running=1), pod("b", running=2), pod("c"))
    see(cluster, 60, complete=True)
    job = GpuJob.objects.get()
    assert (job.all_running_at, job.starts, job.ran_seconds, job.outcome) == (None, 0, 0, "deleted")
    assert [p.running for p in job.all_pods() if p.name == "c"] == [None]


def test_a_cluster_whose_clock_is_ahead_makes_no_time_that_has_not_passed(cluster):
    see(cluster, 5, pod("a", created=600, running=700))
    see(cluster, 10, ended("a", 650))
    job = GpuJob.objects.get()
    assert at(0) <= job.queued_at <= job.started_at <= job.ended_at <= at(10)
    assert 0 <= job.ran_seconds <= 300


def test_a_list_and_an_event_that_tell_nothing_new_write_nothing(cluster, django_assert_num_queries):
    see(cluster, 1, *(pod(f"p{n}", running=0) for n in range(5)), complete=True)
    before = GpuJob.objects.values_list("changed_at").get()
    again = [pod(f"p{n}", running=0) for n in range(5)]
    for raw, stored in zip(again, GpuPod.objects.order_by("name"), strict=True):
        raw["metadata"]["resourceVersion"] = stored.resource_version
    with django_assert_num_queries(1):
        store.observe_pods(cluster, again, complete=True, at=at(2))
    assert GpuJob.objects.values_list("changed_at").get() == before


def test_a_jobs_row_keeps_those_that_live_and_forgets_the_oldest_that_ended(cluster, monkeypatch):
    monkeypatch.setattr(job_rows, "MOST_PODS", 4)
    for n in range(6):
        see(cluster, 10 * n + 1, pod(f"p{n}", created=10 * n, running=10 * n))
        see(cluster, 10 * n + 6, ended(f"p{n}", 10 * n + 5, phase="Failed"))
    see(cluster, 90, pod("last", created=89, running=89))
    job = GpuJob.objects.get()
    assert [p.name for p in job.all_pods()] == ["p3", "p4", "p5", "last"]
    assert (job.pods_seen, job.starts, job.ran_seconds, job.state) == (7, 7, 6 * 300, "running")
    see(cluster, 91, *(pod(f"more{n}", created=90, running=90) for n in range(6)))
    see(cluster, 92, *(pod(f"more{n}", created=90, running=90, restarts=1) for n in range(6)))
    job = GpuJob.objects.get()
    assert (job.pods_seen, job.size, job.restarts, len(job.pods)) == (13, 7, 6, 7)


def labeled(labels=(), annotations=(), owner=("Job", "child", "u-child")):
    references = [dict(zip(("kind", "name", "uid"), owner, strict=True), controller=True)] if owner else []
    return {
        "metadata": {
            "name": "p", "uid": "u-pod", "labels": dict(labels), "annotations": dict(annotations),
            "ownerReferences": references,
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (labeled(), ("Job", "child", "u-child")),
        (labeled(owner=None), ("Pod", "p", "u-pod")),
        (
            labeled({"jobset.sigs.k8s.io/jobset-name": "pre", "jobset.sigs.k8s.io/jobset-uid": "u-set"}),
            ("JobSet", "pre", "u-set"),
        ),
        (labeled({"ray.io/cluster": "r"}, owner=("RayCluster", "r", "u-r")), ("RayCluster", "r", "u-r")),
        (
            labeled(
                {"ray.io/cluster": "r-x", "ray.io/originated-from-cr-name": "r", "ray.io/originated-from-crd": "RayJob"}
            ),
            ("RayJob", "r", ""),
        ),
        (
            labeled({"training.kubeflow.org/job-name": "t"}, owner=("PyTorchJob", "t", "u-t")),
            ("PyTorchJob", "t", "u-t"),
        ),
        (labeled({"training.kubeflow.org/job-name": "t"}), ("TrainingJob", "t", "")),
        (labeled({"volcano.sh/job-name": "v"}, owner=("Job", "v", "u-v")), ("Volcano Job", "v", "u-v")),
        (labeled({}, {"volcano.sh/job-name": "v"}, owner=None), ("Volcano Job", "v", "")),
        (
            labeled({"leaderworkerset.sigs.k8s.io/name": "l"}, owner=("StatefulSet", "l-0", "u")),
            ("LeaderWorkerSet", "l", ""),
        ),
        (labeled({"kueue.x-k8s.io/pod-group-name": "g"}, owner=None), ("Pod group", "g", "")),
        (labeled({"scheduler.slinky.slurm.net/slurm-jobid": "17"}, owner=None), ("Slurm job", "17", "")),
        (labeled({"pod-template-hash": "6d4f"}, owner=("ReplicaSet", "web-6d4f", "u")), ("Deployment", "web", "")),
        (labeled({"jobset.sigs.k8s.io/jobset-name": ["no", "text"]}), ("Job", "child", "u-child")),
    ],
)
def test_a_pod_belongs_to_the_outermost_job_that_it_names(raw, expected):
    assert job_owner.identify(raw) == expected


def test_hostile_names_and_labels_are_stored_as_far_as_they_fit_and_stay_apart(cluster):
    long = "<script>" + "x" * 10_000
    for name in ("a", "b"):
        labels = {"leaderworkerset.sigs.k8s.io/name": f"{long}{name}", "kueue.x-k8s.io/queue-name": "\0" + long}
        see(cluster, 1, pod(name, labels=labels))
    see(cluster, 1, pod("c", labels="rubbish", ownerReferences="rubbish"), pod("d", ownerReferences=[None, 3]))
    jobs = list(GpuJob.objects.filter(kind="LeaderWorkerSet"))
    assert len({job.key for job in jobs}) == 2
    assert all(len(job.name) == 253 and len(job.queue) == 253 and "\0" not in job.queue for job in jobs)


def test_a_job_keeps_the_controllers_of_its_pods_after_they_are_gone(cluster):
    label = {"labels": {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/jobset-uid": "s"}}
    see(cluster, 1, pod("a", job="set-a", **label), pod("b", job="set-b", **label))
    bare = pod("c", **label)
    del bare["metadata"]["ownerReferences"]
    see(cluster, 2, bare)
    see(cluster, 3, complete=True)
    job = GpuJob.objects.get()
    assert (job.kind, job.state) == ("JobSet", "ended")
    assert GpuJob.controllers_of(job.controllers) == ["Job/set-a", "Job/set-b", ""]


def test_a_job_of_before_learns_the_controller_as_its_pod_ends_and_keeps_no_more_than_some(cluster):
    see(cluster, 1, pod("a", job="set-a"))
    GpuJob.objects.update(controllers="")
    see(cluster, 2, complete=True)
    assert GpuJob.controllers_of(GpuJob.objects.get().controllers) == ["Job/set-a"]
    label = {"labels": {"jobset.sigs.k8s.io/jobset-name": "wide", "jobset.sigs.k8s.io/jobset-uid": "w"}}
    see(cluster, 3, *(pod(f"w{number:02}", job=f"wide-{number:02}", **label) for number in range(30)))
    stored = GpuJob.controllers_of(GpuJob.objects.get(name="wide").controllers)
    assert stored == [f"Job/wide-{number:02}" for number in range(GpuJob.MOST_CONTROLLERS)]
