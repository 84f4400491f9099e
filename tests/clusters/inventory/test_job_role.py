"""The role of a pod in its job, from the labels that each project's controller writes, and from rubbish."""

from __future__ import annotations

import pytest

from clusters.inventory import job_role
from clusters.models import GpuJob, GpuPod
from tests.clusters.factories import ClusterFactory
from tests.clusters.inventory.test_job_rows import pod, see

STAGE = "setpoint.dev/pipeline-stage"
KUBEFLOW = {"training.kubeflow.org/job-name": "llm", "training.kubeflow.org/operator-name": "pytorchjob-controller"}


@pytest.mark.parametrize(
    ("labels", "annotations", "role"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/replicatedjob-name": "driver",
          "jobset.sigs.k8s.io/job-index": "0", "batch.kubernetes.io/job-completion-index": "0"}, {}, "driver"),
        ({"jobset.sigs.k8s.io/replicatedjob-name": "node", "kueue.x-k8s.io/podset": "node"}, {}, "node"),
        ({**KUBEFLOW, "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"},
         {}, "worker"),
        ({**KUBEFLOW, "training.kubeflow.org/replica-type": "Worker"}, {}, "worker"),
        ({**KUBEFLOW, "training.kubeflow.org/replica-type": "master", "training.kubeflow.org/job-role": "master"},
         {}, "master"),
        # a worker that the training operator also names master, where a TFJob has no chief: what it runs is a worker
        ({**KUBEFLOW, "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/job-role": "master"},
         {}, "worker"),
        ({"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "nccl",
          "training.kubeflow.org/job-role": "launcher"}, {}, "launcher"),
        ({"ray.io/cluster": "c", "ray.io/node-type": "head", "ray.io/group": "headgroup"}, {}, "headgroup"),
        ({"ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": "h100-workers"}, {}, "h100-workers"),
        ({"ray.io/cluster": "c", "ray.io/node-type": "worker"}, {}, "worker"),
        ({"volcano.sh/job-name": "mpi", "volcano.sh/task-spec": "mpiworker"}, {}, "mpiworker"),
        ({}, {"volcano.sh/job-name": "mpi", "volcano.sh/task-spec": "mpimaster"}, "mpimaster"),
        ({"leaderworkerset.sigs.k8s.io/name": "v", "leaderworkerset.sigs.k8s.io/worker-index": "0"}, {}, "leader"),
        ({"leaderworkerset.sigs.k8s.io/name": "v", "leaderworkerset.sigs.k8s.io/worker-index": "10"}, {}, "worker"),
        ({"kueue.x-k8s.io/podset": "trainer"}, {}, "trainer"),
        ({**KUBEFLOW, "training.kubeflow.org/replica-type": "worker", STAGE: "2"}, {}, "worker, stage 2"),
        ({**KUBEFLOW, "training.kubeflow.org/replica-type": "worker"}, {STAGE: "0"}, "worker, stage 0"),
        ({}, {STAGE: "last"}, "stage last"),
        ({"pod-template-hash": "6f7c9d", "app": "chat"}, {}, ""),
        ({}, {}, ""),
    ],
)  # fmt: skip
def test_what_controllers_write_names_the_role(labels, annotations, role):
    assert job_role.role({"metadata": {"labels": labels, "annotations": annotations}}) == role
    assert job_role.has_stage(role) == (STAGE in {**labels, **annotations})


@pytest.mark.parametrize(
    ("metadata", "role"),
    [
        ({}, ""),
        ({"labels": None, "annotations": None}, ""),
        ({"labels": ["a"], "annotations": "b"}, ""),
        ({"labels": {"volcano.sh/task-spec": 3, STAGE: {"a": 1}}}, ""),
        ({"labels": {"volcano.sh/task-spec": ""}, "annotations": {STAGE: "  "}}, ""),
        ({"annotations": {STAGE: "x" * 5000}}, f"stage {'x' * 63}"),
        ({"annotations": {STAGE: "1\n2\x1b[31m"}}, "stage 1 2[31m"),
    ],
)
def test_rubbish_names_none_or_a_short_one(metadata, role):
    assert job_role.role({"metadata": metadata}) == role


@pytest.mark.django_db
def test_a_row_written_before_roles_takes_its_role_from_the_next_list():
    cluster = ClusterFactory()
    label = {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    see(cluster, 11, pod("a", running=10, labels=label), pod("b", running=10, labels={}))
    GpuPod.objects.update(role="")
    job = GpuJob.objects.get()
    assert {len(entry) for entry in job.pods} == {9}  # a process of the version before reads them
    job.roles = {}
    job.save(update_fields=["roles"])
    assert [part.role for part in job.all_pods()] == ["", ""]
    see(cluster, 13, pod("a", running=10, labels=label), pod("b", running=10, labels={}), complete=True)
    assert {part.name: part.role for part in GpuJob.objects.get().all_pods()} == {"a": "workers", "b": ""}
    assert GpuPod.objects.get(name="a").role == "workers"


@pytest.mark.django_db
def test_a_stage_that_a_process_writes_later_is_taken_over():
    cluster = ClusterFactory()
    see(cluster, 11, pod("a", running=10))
    see(cluster, 12, pod("a", running=10, annotations={STAGE: "3"}))
    assert [part.role for part in GpuJob.objects.get().all_pods()] == ["stage 3"]
