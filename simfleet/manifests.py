"""Kubernetes objects as simulated clusters hold them: the fields that Setpoint and people read, in their real shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simfleet.machines import instances
from simfleet.machines.hardware import Hardware

Raw = dict[str, Any]
WORK_IMAGE = "registry.example/work:v1"
"""Of pods that `pods.Pods` makes."""
EXPORTER_IMAGES = {
    version: f"nvcr.io/nvidia/k8s/dcgm-exporter:{tag}"
    for version, tag in (("4.8.3", "4.5.2-4.8.3-distroless"), ("4.9.0", "4.7.0-4.9.0-distroless"))
}
STANDING = frozenset({WORK_IMAGE, *EXPORTER_IMAGES.values()})
"""Images whose pods run at once and for ever."""
READY = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}


def node(name: str, hardware: Hardware, *, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]]) -> Raw:
    spec: Raw = {"providerID": f"sim:///{name}", "podCIDR": "10.244.0.0/24"}
    if taints:
        spec["taints"] = [dict(t) for t in taints]
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": hardware.architecture,
                "node.kubernetes.io/instance-type": hardware.instance_type,
                **({"nvidia.com/gpu.product": hardware.gpu_product.replace(" ", "-")} if hardware.gpus else {}),
                **({"nvidia.com/gpu.count": str(hardware.gpus)} if hardware.gpus else {}),
                **instances.labels(hardware.gpus, hardware.mig),
                **labels,
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": spec,
    }


def node_status(
    hardware: Hardware, *, name: str, address: str, boot_id: str, huge_pages: Mapping[int, int], pad: int = 0
) -> Raw:
    """`pad`: bytes of image list to add; a busy node's object is about 25 KB, most of it that list."""
    reserved_kb = sum(kb * count for kb, count in huge_pages.items())
    memory = hardware.memory_gib * 1024 * 1024
    capacity = {
        "cpu": str(hardware.cpus),
        "memory": f"{memory}Ki",
        "ephemeral-storage": "3750Gi",
        "pods": "110",
        "hugepages-2Mi": _quantity(huge_pages.get(2048, 0) * 2, "Mi"),
        "hugepages-1Gi": _quantity(huge_pages.get(1048576, 0), "Gi"),
    }
    if hardware.gpus and hardware.has_plugin:
        capacity |= instances.offered(hardware.gpus, hardware.mig)
    status: Raw = {
        "capacity": capacity,
        "allocatable": capacity | {"memory": f"{memory - reserved_kb - 1048576}Ki"},
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "machineID": f"{abs(hash_text(name)):032x}",
            "systemUUID": f"{abs(hash_text(name + 'uuid')):032x}",
            "bootID": boot_id,
            "kernelVersion": hardware.release,
            "osImage": hardware.os_image,
            "containerRuntimeVersion": "containerd://1.7.22",
            "kubeletVersion": "v1.35.4",
            "kubeProxyVersion": "v1.35.4",
            "operatingSystem": "linux",
            "architecture": hardware.architecture,
        },
        "images": [],
    }
    while pad > 0:
        count = len(status["images"])
        name_ = f"registry.example/{name}/image-{count:03d}@sha256:{abs(hash_text(f'{name}{count}')):064x}"
        tag = name_.partition("@")[0] + ":v1"
        status["images"].append({"names": [name_, tag], "sizeBytes": 1_000_000 + count})
        pad -= len(name_) + len(tag) + 36  # the rest of an entry
    return status


def hash_text(text: str) -> int:
    """The same number in every process, unlike `hash`."""
    value = 1469598103934665603
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 & (2**128 - 1)
    return value


def _quantity(number: int, unit: str) -> str:
    return f"{number}{unit}" if number else "0"


def conditions(status: str, reason: str, message: str, at: str) -> list[Raw]:
    """A node's conditions with Ready as given; the pressures are unknown when the kubelet is."""
    pressure = "Unknown" if status == "Unknown" else "False"
    out = [
        {"type": type_, "status": pressure, "reason": f"KubeletHasSufficient{what}", "message": ""}
        for type_, what in (("MemoryPressure", "Memory"), ("DiskPressure", "Disk"), ("PIDPressure", "PID"))
    ]
    out.append({"type": "Ready", "status": status, "reason": reason, "message": message})
    return [c | {"lastHeartbeatTime": at, "lastTransitionTime": at} for c in out]


def pod(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    gpus: int = 0,
    resource: str = instances.WHOLE,
    owner: Mapping[str, Any] | None = None,
    grace: int = 30,
    empty_dir: bool = False,
    mirror: bool = False,
    restart_policy: str = "Always",
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Mapping[str, str]] = (),
    image: str = WORK_IMAGE,
) -> Raw:
    metadata: Raw = {"name": name, "namespace": namespace, "labels": dict(labels)}
    if owner:
        metadata["ownerReferences"] = [dict(owner) | {"controller": True, "blockOwnerDeletion": True}]
    if mirror:
        metadata["annotations"] = {
            "kubernetes.io/config.mirror": f"{abs(hash_text(name)):032x}",
            "kubernetes.io/config.source": "file",
        }
    resources = {"limits": {resource: str(gpus)}, "requests": {resource: str(gpus)}} if gpus else {}
    spec: Raw = {
        "containers": [{"name": "main", "image": image, "resources": resources}],
        "restartPolicy": restart_policy,
        "terminationGracePeriodSeconds": grace,
        "schedulerName": "default-scheduler",
    }
    if empty_dir:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    if node_selector:
        spec["nodeSelector"] = dict(node_selector)
    if tolerations:
        spec["tolerations"] = [dict(t) for t in tolerations]
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def pod_conditions(*, is_ready: bool, at: str) -> list[Raw]:
    status = "True" if is_ready else "False"
    return [
        {"type": type_, "status": status if type_ != "PodScheduled" else "True", "lastTransitionTime": at}
        for type_ in ("Ready", "ContainersReady", "PodScheduled")
    ]
