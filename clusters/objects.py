"""Readers of raw Kubernetes objects: pure functions over JSON dicts, tolerant of absent fields. Standard library
only."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from contract import names

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
"""Extended resources of GPUs. Parts of one that are named by how it is split are counted as one device each."""
DRA_DRIVER = "gpu.nvidia.com"
"""NVIDIA's driver that publishes GPUs for claims."""
MIG_PREFIX, AMD_SUFFIX = "nvidia.com/mig-", "_nps"
SHARED, SHARED_SUFFIX = "shared", ".shared"
"""What NVIDIA's device plugin adds to a resource whose units are shares of a device, with `renameByDefault`: time
slicing and MPS. Without it they keep the name, and only the label `<resource>.replicas` of GPU feature discovery
tells of them (github.com/NVIDIA/k8s-device-plugin, README, "Shared Access to GPUs")."""
_VIRTUAL = (
    r"nvidia\.com/(?:GRID_|NVIDIA_)?([A-Z]\w*(?:-\w+)*-\d{1,3}[ABCQ](?:ME|\d)?)",
    r"nvidia\.com/((?:G[FKMPVABHR]|TU|AD)\d{2,3}[A-Z]{0,3}(?:_\w+)?(?<!NVSWITCH)(?<!CONTROLLER)|[0-9a-f]{4}|pgpu)",
)
"""What NVIDIA's plugin for KubeVirt offers to virtual machines: vGPUs by their type (GRID T4-1Q, NVIDIA A100-1-5CME,
NVIDIA H200X-141C), and boards that are passed through by their name in pci.ids (GA102GL_A10), by their number where
that lacks them, or as `pgpu` to Kata
(github.com/NVIDIA/kubevirt-gpu-device-plugin, pkg/device_plugin: getDeviceName, mergeCreatableVgpuTypes)."""
_PARTS = re.compile("|".join((r"nvidia\.com/mig-(.+)", r"amd\.com/((?:spx|dpx|tpx|qpx|cpx)_nps\d{1,2})", *_VIRTUAL)))
"""MIG's, AMD's partitions under its device plugin's `resource_naming_strategy` mixed, and those of virtual machines."""

OUT_OF_MEMORY = "OOMKilled"
"""Reason of a container that the kernel killed at its memory limit, or for want of memory on the node."""

_BRIEF = ("namespace", "name", "uid", "resourceVersion")


def meta(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return raw.get("metadata") or {}


def uid(raw: Mapping[str, Any]) -> str:
    """Return the UID of an object of any shape; empty where it has none."""
    metadata = raw.get("metadata")
    value = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return value if isinstance(value, str) else ""


def brief(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of any shape with no more than its names, UID and version."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping):
        return {"metadata": {}}
    return {"metadata": {name: metadata[name] for name in _BRIEF if name in metadata}}


def brief_event(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event tells of an object of which nothing is kept: its names, and how it ended if it did.

    A pod may lose what it shared in the very event that tells of its end.
    """
    status = raw.get("status")
    is_over = isinstance(status, Mapping) and status.get("phase") in ("Succeeded", "Failed")
    return {**brief(raw), "status": status} if is_over else brief(raw)


def is_virtual(resource: str) -> bool:
    """Return whether it is a GPU, or a part of one, that only virtual machines are given."""
    return any(re.fullmatch(pattern, resource) for pattern in _VIRTUAL)


def is_gpu(resource: str) -> bool:
    base = resource.removesuffix(SHARED_SUFFIX)
    return base in GPU_RESOURCES or _PARTS.fullmatch(base) is not None


def gpu_count(resources: Mapping[str, Any] | None) -> int:
    total = 0
    for name, value in (resources or {}).items():
        if is_gpu(name):
            try:
                total += int(str(value))
            except ValueError:
                continue
    return total


def virtual_count(resources: Mapping[str, Any] | None) -> int:
    """Count those for virtual machines; part of `gpu_count`."""
    return gpu_count({name: value for name, value in (resources or {}).items() if is_virtual(name)})


def profile(resource: str) -> str:
    """Return the profile of a part of a GPU: 1g.10gb, cpx_nps4, A10-24Q, 1g.10gb.shared, shared. Empty: a whole one.

    A board that is passed through to a virtual machine has its name: no pod that requests a GPU is given it.
    """
    if resource.endswith(SHARED_SUFFIX) and resource.removesuffix(SHARED_SUFFIX) in GPU_RESOURCES:
        return SHARED
    match = _PARTS.fullmatch(resource)
    return match[match.lastindex or 0] if match else ""


def unshared(name: str) -> str:
    """Return the profile of the devices whose shares a profile names: 1g.10gb of 1g.10gb.shared, empty of shared."""
    return "" if name == SHARED else name.removesuffix(SHARED_SUFFIX)


def instances(resources: Mapping[str, Any] | None) -> Counter[str]:
    """Parts of GPUs by profile; part of `gpu_count`."""
    named = {name: value for name, value in (resources or {}).items() if profile(name)}
    return +Counter({profile(name): gpu_count({name: value}) for name, value in named.items()})


def is_ready(node: Mapping[str, Any]) -> bool:
    return condition(node, "Ready") == "True"


def condition(node: Mapping[str, Any], type_: str) -> str:
    """Status of a node condition; "Unknown" when it is absent."""
    for item in (node.get("status") or {}).get("conditions") or ():
        if item.get("type") == type_:
            return str(item.get("status"))
    return "Unknown"


def is_cordoned(node: Mapping[str, Any]) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def cordon_owner(node: Mapping[str, Any]) -> str:
    return str((meta(node).get("annotations") or {}).get(names.CORDONED_BY, ""))


def is_to_be_kept(node: Mapping[str, Any]) -> bool:
    """Return whether an operator wants it to stay cordoned when Setpoint is done with it."""
    return names.KEEP_CORDONED in (meta(node).get("annotations") or {})


def boot_id(node: Mapping[str, Any]) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID", ""))


def is_control_plane(node: Mapping[str, Any]) -> bool:
    labels = meta(node).get("labels") or {}
    return "node-role.kubernetes.io/control-plane" in labels or "node-role.kubernetes.io/master" in labels


def pod_gpus(pod: Mapping[str, Any]) -> int:
    """GPUs a pod holds: the larger of its containers' sum and its largest init container, as the scheduler counts."""
    spec = pod.get("spec") or {}

    def wanted(container: Mapping[str, Any]) -> int:
        resources = container.get("resources") or {}
        return max(gpu_count(resources.get("limits")), gpu_count(resources.get("requests")))

    running = sum(wanted(c) for c in spec.get("containers") or ())
    starting = max((wanted(c) for c in spec.get("initContainers") or ()), default=0)
    return max(running, starting)


def pod_instances(pod: Mapping[str, Any]) -> Counter[str]:
    """Count a pod's MIG instances by profile, in the same way as `pod_gpus`."""
    spec = pod.get("spec") or {}

    def wanted(container: Mapping[str, Any]) -> Counter[str]:
        resources = container.get("resources") or {}
        return instances(resources.get("limits")) | instances(resources.get("requests"))

    running = sum((wanted(c) for c in spec.get("containers") or ()), Counter[str]())
    for container in spec.get("initContainers") or ():
        running |= wanted(container)
    return running


def memory_kills(pod: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many of a pod's containers were ended last because they ran out of memory, and the latest time.

    A status holds the last end of each container alone, and the one before is forgotten. The time is the kubelet's
    text; it is empty where no container ended so.
    """
    status = pod.get("status") or {}
    ends: list[str] = []
    for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        now, before = container.get("state") or {}, container.get("lastState") or {}
        end = now.get("terminated") or before.get("terminated") or {}
        if end.get("reason") == OUT_OF_MEMORY:
            ends.append(str(end.get("finishedAt") or ""))
    return len(ends), max(ends, default="")


def is_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def controller(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name of the controlling owner, or two empty strings."""
    for owner in meta(raw).get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("kind", "")), str(owner.get("name", ""))
    return "", ""


def is_daemon(pod: Mapping[str, Any]) -> bool:
    return controller(pod)[0] == "DaemonSet"


def is_mirror(pod: Mapping[str, Any]) -> bool:
    return "kubernetes.io/config.mirror" in (meta(pod).get("annotations") or {})


def has_empty_dir(pod: Mapping[str, Any]) -> bool:
    return any("emptyDir" in v for v in (pod.get("spec") or {}).get("volumes") or ())


def stays(pod: Mapping[str, Any]) -> bool:
    """A drain leaves it: DaemonSet pods come back at once, mirror pods are not the API server's, finished ones are
    done."""
    return is_daemon(pod) or is_mirror(pod) or is_finished(pod)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector (matchLabels, matchExpressions) over labels. None selects nothing, {} everything."""
    if selector is None:
        return False
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    for item in selector.get("matchExpressions") or ():
        key, operator, values = item.get("key"), item.get("operator"), item.get("values") or []
        present = key in labels
        if operator == "In" and not (present and labels[key] in values):
            return False
        if operator == "NotIn" and present and labels[key] in values:
            return False
        if operator == "Exists" and not present:
            return False
        if operator == "DoesNotExist" and present:
            return False
    return True


def decoded(data: object) -> str | None:
    """The text of a Secret's value; None for what is absent, or no text."""
    try:
        return base64.b64decode(str(data), validate=True).decode() if isinstance(data, str) else None
    except (binascii.Error, UnicodeDecodeError):
        return None
