"""The Pod Security level that pods need, by Kubernetes' own standards, read from their specifications.

The fields are those of https://kubernetes.io/docs/concepts/security/pod-security-standards. What cannot be told counts
as needing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from components.catalog.entry import POD_SECURITY

_HOST = ("hostNetwork", "hostPID", "hostIPC")
_BASELINE_ADDS = frozenset(
    ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
     "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT")
)  # fmt: skip
_RESTRICTED_VOLUMES = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
)
_SECCOMP = ("RuntimeDefault", "Localhost")
PRIVILEGED, BASELINE, RESTRICTED = POD_SECURITY


def level(objects: Iterable[Mapping[str, Any]]) -> str:
    """Return the strictest level that admits the pods of all these objects."""
    specs = [spec for raw in objects for spec in pods(raw)]
    if any(_needs_privileged(spec) for spec in specs):
        return PRIVILEGED
    return RESTRICTED if all(_is_restricted(spec) for spec in specs) else BASELINE


def pods(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the pod specification of an object that makes pods."""
    spec = _part(raw, "spec")
    if raw.get("kind") == "Pod":
        yield spec
        return
    if raw.get("kind") == "CronJob":
        spec = _part(_part(spec, "jobTemplate"), "spec")
    pod = _part(_part(spec, "template"), "spec")
    if raw.get("kind") in ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job", "CronJob"):
        yield pod


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = raw.get(name)
    return part if isinstance(part, Mapping) else {}


def _listed(raw: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = raw.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for name in ("containers", "initContainers", "ephemeralContainers") for row in _listed(spec, name)]


def _needs_privileged(spec: Mapping[str, Any]) -> bool:
    if any(spec.get(name) for name in _HOST) or any("hostPath" in volume for volume in _listed(spec, "volumes")):
        return True
    return any(_container_needs_privileged(container) for container in _containers(spec))


def _container_needs_privileged(container: Mapping[str, Any]) -> bool:
    context = _part(container, "securityContext")
    adds = _part(context, "capabilities").get("add") or ()
    return bool(
        context.get("privileged")
        or any(name not in _BASELINE_ADDS for name in adds)
        or any(port.get("hostPort") for port in _listed(container, "ports"))
        or context.get("procMount") not in (None, "Default")
        or _part(context, "seccompProfile").get("type") == "Unconfined"
    )


def _is_restricted(spec: Mapping[str, Any]) -> bool:
    of_pod = _part(spec, "securityContext")
    kinds = {name for volume in _listed(spec, "volumes") for name in volume if name != "name"}
    return kinds <= _RESTRICTED_VOLUMES and all(_container_is_restricted(row, of_pod) for row in _containers(spec))


def _container_is_restricted(container: Mapping[str, Any], of_pod: Mapping[str, Any]) -> bool:
    context = _part(container, "securityContext")
    capabilities = _part(context, "capabilities")
    is_non_root = context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is True
    seccomp = _part(context, "seccompProfile") or _part(of_pod, "seccompProfile")
    return (
        is_non_root
        and context.get("runAsUser", of_pod.get("runAsUser")) != 0
        and context.get("allowPrivilegeEscalation") is False
        and "ALL" in (capabilities.get("drop") or ())
        and {*(capabilities.get("add") or ())} <= {"NET_BIND_SERVICE"}
        and seccomp.get("type") in _SECCOMP
    )
