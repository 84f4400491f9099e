"""The pod of one run: bound to its node by the scheduler, without privileges or token.

It requests all GPUs of the node and has no network, or none of them and the pods' network, where its check tests that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters import objects
from contract import names
from gpus.models import CheckRun
from gpus.services.checks.catalog import RESOURCES, Check

MEMORY, CPU = "1Gi", "1"
"""Requests, without limits: the node is idle, and a check that is held back measures the limit."""
LIGHT_MEMORY, LIGHT_CPU = "64Mi", "20m"
"""Requests of a check that runs beside other pods, and its limit of memory."""
NOBODY = 65534
GRACE_SECONDS = 5
UNPULLABLE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"}


def resource_of(check: Check, allocatable: Mapping[str, Any]) -> tuple[str, int]:
    """Return the resource of the node's whole GPUs and how many it offers; ("", 0): none that this check takes."""
    for vendor in check.vendors:
        offered = str(allocatable.get(RESOURCES[vendor], "0"))
        if offered.isdecimal() and int(offered):
            return RESOURCES[vendor], int(offered)
    return "", 0


def manifest(run: CheckRun, check: Check, *, node: str, resource: str) -> dict[str, Any]:
    """The scheduler places it, so that it never displaces a pod and never takes GPUs that another pod holds."""
    container: dict[str, Any] = {
        "name": "check",
        "image": run.image,
        "command": check.arguments(run.gpus, run.targets),
        "resources": _resources(check, resource, run.gpus),
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePolicy": "File",
    }
    if not check.takes_gpus:
        container["securityContext"] |= {
            "runAsNonRoot": True, "runAsUser": NOBODY, "runAsGroup": NOBODY, "readOnlyRootFilesystem": True,
        }  # fmt: skip
    volumes, mounts = _volumes(check)
    if volumes:
        container["volumeMounts"] = mounts
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}]
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(check.limit.total_seconds()),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": names.CHECKS_PRIORITY_CLASS,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "tolerations": [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in RESOURCES.values()],
        "containers": [container],
    }
    if volumes:
        spec["volumes"] = volumes
    labels = {"app.kubernetes.io/part-of": "setpoint", names.CHECK_LABEL: str(run.pk)}
    if not check.takes_gpus:
        labels[names.CHECK_NETWORK_LABEL] = "pods"
    metadata = {"name": run.pod_name, "namespace": names.CHECKS_NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _resources(check: Check, resource: str, gpus: int) -> dict[str, Any]:
    if not check.takes_gpus:
        return {"requests": {"cpu": LIGHT_CPU, "memory": LIGHT_MEMORY}, "limits": {"memory": LIGHT_MEMORY}}
    held = {resource: str(gpus)}
    return {"requests": {"cpu": CPU, "memory": MEMORY} | held, "limits": held}


def _volumes(check: Check) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if check.scratch:
        volumes.append({"name": "scratch", "emptyDir": {"sizeLimit": check.scratch}})
        mounts.append({"name": "scratch", "mountPath": "/scratch"})
    if check.shared_memory:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": check.shared_memory}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - of the pod, which is alone in it
    return volumes, mounts


def is_of(pod: Mapping[str, Any], run: CheckRun) -> bool:
    """Return whether this object is the run's own pod: a name alone is no proof."""
    metadata = pod.get("metadata") or {}
    is_same = not run.pod_uid or metadata.get("uid") == run.pod_uid
    return is_same and (metadata.get("labels") or {}).get(names.CHECK_LABEL) == str(run.pk)


def uid_of(pod: Mapping[str, Any]) -> str:
    return str((pod.get("metadata") or {}).get("uid") or "")


def is_finished(pod: Mapping[str, Any]) -> bool:
    return objects.is_finished(pod)


def end_of(pod: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the exit code of its only container, and why Kubernetes ended the pod itself."""
    status = pod.get("status") or {}
    code = None
    for container in status.get("containerStatuses") or ():
        code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
    return (code if isinstance(code, int) else None), str(status.get("reason") or "")


def stuck(pod: Mapping[str, Any]) -> str:
    """Return the kubelet's reason why the container will not start; empty: none."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in UNPULLABLE:
            return f"{waiting['reason']}: {waiting.get('message') or ''}"[:300]
    return ""
