"""Workloads that hold GPUs on a machine in QEMU: jobs for Kueue's queue, and Volcano's jobs and gangs."""

from __future__ import annotations

from typing import Any

from tests.nodemachine.node import AGENT

TEAM, GANGS = "team-a", "gangs"
"""Namespaces of Kueue's jobs, and of Volcano's."""
WORKS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); signal.pause()"
"""A program that ends well when it is told to."""


def pod_spec(mark: str) -> dict[str, Any]:
    """A pod of one GPU, whose program `end` finds by its mark."""
    container = {
        "name": "program", "image": AGENT, "imagePullPolicy": "Never",
        "command": ["python", "-S", "-c", WORKS, mark], "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }  # fmt: skip
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}


def batch_job(name: str) -> dict[str, Any]:
    """A job for Kueue's queue."""
    labels = {"kueue.x-k8s.io/queue-name": "training"}
    metadata = {"name": name, "namespace": TEAM, "labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": {"spec": pod_spec(name)}},
    }


def volcano_job(name: str, pods: int) -> dict[str, Any]:
    """A job of Volcano's whose pods start together or not at all.

    Volcano adds up requests for its PodGroup, and takes no limit for one.
    """
    template = pod_spec(name)
    resources = template["containers"][0]["resources"]
    resources["requests"] = resources["limits"]
    task = {"name": "worker", "replicas": pods, "template": {"spec": template}}
    spec = {"schedulerName": "volcano", "minAvailable": pods, "queue": "default", "tasks": [task]}
    metadata = {"name": name, "namespace": GANGS}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


def bare_gang(name: str, pods: int) -> list[dict[str, Any]]:
    """A PodGroup without an amount of resources, and pods that are already there: only the scheduler holds them."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": GANGS}, "spec": {"minMember": pods, "queue": "default"},
    }  # fmt: skip
    annotations = {"scheduling.k8s.io/group-name": name}
    members = [
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "namespace": GANGS, "annotations": annotations},
            "spec": {**pod_spec(name), "schedulerName": "volcano"},
        }
        for number in range(pods)
    ]  # fmt: skip
    return [group, *members]
