"""Objects of Dynamic Resource Allocation as a cluster with NVIDIA's driver has them (resource.k8s.io/v1)."""

from __future__ import annotations

from typing import Any

from tests.clusters.factories import raw_pod, version

DRIVER = "gpu.nvidia.com"
PRODUCT = "NVIDIA H100 80GB HBM3"
PLACEMENTS = [("1g.10gb", 19, start, 1) for start in range(7)] + [("3g.40gb", 9, start, 4) for start in (0, 4)]
"""Of an H100: profile, its id, first slice of memory, and how many."""


def board(minor: int, *, is_divisible: bool = False) -> dict[str, Any]:
    device: dict[str, Any] = {
        "name": f"gpu-{minor}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{minor}"},
            "productName": {"string": PRODUCT},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "580.95.5"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{minor:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }
    if is_divisible:
        device["consumesCounters"] = [_consumed(minor, 132, 0, 8)]
    return device


def _consumed(minor: int, multiprocessors: int, start: int, size: int) -> dict[str, Any]:
    counters = {"multiprocessors": {"value": str(multiprocessors)}}
    counters |= {f"memory-slice-{at}": {"value": "1"} for at in range(start, start + size)}
    return {"counterSet": f"gpu-{minor}-counter-set", "counters": counters}


def instance(minor: int, profile: str, number: int, start: int, size: int, *, is_made: bool) -> dict[str, Any]:
    attributes = {name: value for name, value in board(minor)["attributes"].items() if name != "uuid"}
    attributes |= {"type": {"string": "mig"}, "profile": {"string": profile}, "parentUUID": {"string": f"GPU-{minor}"}}
    device: dict[str, Any] = {
        "name": f"gpu-{minor}-mig-{profile.replace('.', '')}-{number}-{start}",
        "attributes": attributes,
        "capacity": {"memory": {"value": "9728Mi"}, "multiprocessors": {"value": "16"}},
    }
    if is_made:
        device["consumesCounters"] = [_consumed(minor, 16, start, size)]
    else:
        device["attributes"]["uuid"] = {"string": f"MIG-{minor}-{number}-{start}"}
    return device


def divisible(minor: int) -> list[dict[str, Any]]:
    """A board that the driver makes instances of when a claim wants one."""
    return [board(minor, is_divisible=True), *(instance(minor, *place, is_made=True) for place in PLACEMENTS)]


def raw_slice(
    node: str = "n1", devices: Any = (), *, generation: int = 1, driver: str = DRIVER, name: str = ""
) -> dict[str, Any]:
    name = name or f"{node}-{driver}-{generation}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "generation": 1,
            "resourceVersion": version(),
            "ownerReferences": [{"apiVersion": "v1", "controller": True, "kind": "Node", "name": node, "uid": "n"}],
        },
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"generation": generation, "name": node, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def raw_claim(name: str, *devices: str, pods: Any = (), node: str = "n1", **over: Any) -> dict[str, Any]:
    """`over`: driver, is_admin, annotations, owner, count, device_class."""
    kind = over.get("device_class", DRIVER)
    request = {"allocationMode": "ExactCount", "count": over.get("count", 1), "deviceClassName": kind}
    raw: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "resourceVersion": version(),
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"} | over.get("annotations", {}),
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        "status": {},
    }
    if owner := over.get("owner"):
        reference = {"apiVersion": "v1", "blockOwnerDeletion": True, "controller": True, "kind": "Pod"}
        raw["metadata"]["ownerReferences"] = [reference | {"name": owner, "uid": f"uid-of-pod-{owner}"}]
    if devices:
        result = {"driver": over.get("driver", DRIVER), "pool": node, "request": "gpu"}
        result |= {"adminAccess": True} if over.get("is_admin") else {}
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        raw["status"] = {
            "allocation": {
                "allocationTimestamp": "2026-11-21T09:00:00Z",
                "devices": {"results": [result | {"device": device} for device in devices]},
                "nodeSelector": {"nodeSelectorTerms": terms},
            },
            "reservedFor": [{"name": pod, "resource": "pods", "uid": f"uid-of-pod-{pod}"} for pod in pods],
        }
    return raw


def pod_with_claims(name: str, *claims: str, is_template: bool = True, node: str = "n1", gpus: int = 0) -> Any:
    raw = raw_pod(name, node=node, gpus=gpus, phase="Running" if node else "Pending")
    uses = [f"use-{number}" for number in range(len(claims))]
    raw["spec"]["containers"][0]["resources"]["claims"] = [{"name": use} for use in uses]
    if is_template:
        raw["spec"]["resourceClaims"] = [{"name": use, "resourceClaimTemplateName": "one-gpu"} for use in uses]
        named = zip(uses, claims, strict=True)
        raw["status"]["resourceClaimStatuses"] = [{"name": use, "resourceClaimName": claim} for use, claim in named]
    else:
        named = zip(uses, claims, strict=True)
        raw["spec"]["resourceClaims"] = [{"name": use, "resourceClaimName": claim} for use, claim in named]
    return raw
