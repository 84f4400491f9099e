"""References of one policy object to others: which come first, and which have to be in the cluster already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from profiles.content.cluster import WantedObject
from profiles.policies.queues import ROOT

Reference = tuple[str, str, str]
"""Path within the object; the kind that it names; its name, `namespace/name` of a kind that has one."""


def of(policy: WantedObject) -> Iterator[Reference]:
    """Yield each object that this one names."""
    named = _OF_KIND.get(policy.kind)
    if named:
        yield from named(policy, policy.body.get("spec") or {})


def _queue(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    if spec.get("parent") not in (None, ROOT):
        yield "spec.parent", "Queue", spec["parent"]


def _local_queue(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    yield "spec.clusterQueue", "ClusterQueue", spec["clusterQueue"]


def _flavor(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    if spec.get("topologyName"):
        yield "spec.topologyName", "Topology", spec["topologyName"]


def _cluster_queue(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    for number, group in enumerate(spec.get("resourceGroups") or ()):
        for index, flavor in enumerate(group["flavors"]):
            yield f"spec.resourceGroups[{number}].flavors[{index}].name", "ResourceFlavor", flavor["name"]


def _claim(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    if spec.get("volumeName"):
        yield "spec.volumeName", "PersistentVolume", spec["volumeName"]
    elif spec.get("storageClassName"):  # a volume that is named already needs no class to be made by
        yield "spec.storageClassName", "StorageClass", spec["storageClassName"]


def _hyper_node(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    for index, member in enumerate(spec.get("members") or ()):
        exact = member.get("selector", {}).get("exactMatch")
        if member.get("type") == "HyperNode" and exact:
            yield f"spec.members[{index}].selector.exactMatch.name", "HyperNode", exact["name"]


def _binding(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    reference = policy.body["roleRef"]
    if reference["kind"] == "Role":
        yield "roleRef.name", "Role", f"{policy.namespace}/{reference['name']}"


def _multikueue(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    for index, name in enumerate(spec["clusters"]):
        yield f"spec.clusters[{index}]", "MultiKueueCluster", name


def _admission_check(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    yield "spec.parameters.name", "MultiKueueConfig", spec["parameters"]["name"]


def _claim_template(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    for index, request in enumerate(spec["spec"]["devices"]["requests"]):
        at = f"spec.spec.devices.requests[{index}]"
        if "exactly" in request:
            yield f"{at}.exactly.deviceClassName", "DeviceClass", request["exactly"]["deviceClassName"]
        for number, other in enumerate(request.get("firstAvailable") or ()):
            yield f"{at}.firstAvailable[{number}].deviceClassName", "DeviceClass", other["deviceClassName"]


def _runtime(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    """A runtime of Fluid caches the Dataset of its own name."""
    yield "metadata.name", "Dataset", f"{policy.namespace}/{policy.name}"


def _data_load(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    yield "spec.dataset.name", "Dataset", f"{policy.namespace}/{spec['dataset']['name']}"


def _external_secret(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    yield from _store("spec", policy.namespace, spec)


def _cluster_external_secret(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    yield from _store("spec.externalSecretSpec", "", spec["externalSecretSpec"])


def _store(at: str, namespace: str, spec: Mapping[str, Any]) -> Iterator[Reference]:
    store = spec.get("secretStoreRef") or {}
    if store.get("name"):
        kind = store.get("kind") or "SecretStore"
        name = store["name"] if kind == "ClusterSecretStore" else f"{namespace}/{store['name']}"
        yield f"{at}.secretStoreRef.name", kind, name


def _virtual_service(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    for index, name in enumerate(spec.get("gateways") or ()):
        if name != "mesh":
            yield f"spec.gateways[{index}]", "Gateway", name if "/" in name else f"{policy.namespace}/{name}"


def _slurm_pods(policy: WantedObject, spec: Mapping[str, Any]) -> Iterator[Reference]:
    yield "spec.controllerRef.name", "Controller", f"{policy.namespace}/{spec['controllerRef']['name']}"


_OF_KIND: Mapping[str, Callable[[WantedObject, Mapping[str, Any]], Iterator[Reference]]] = {
    "Queue": _queue,
    "LocalQueue": _local_queue,
    "ResourceFlavor": _flavor,
    "ClusterQueue": _cluster_queue,
    "PersistentVolumeClaim": _claim,
    "HyperNode": _hyper_node,
    "RoleBinding": _binding,
    "MultiKueueConfig": _multikueue,
    "AdmissionCheck": _admission_check,
    "ResourceClaimTemplate": _claim_template,
    "AlluxioRuntime": _runtime,
    "JuiceFSRuntime": _runtime,
    "DataLoad": _data_load,
    "ExternalSecret": _external_secret,
    "ClusterExternalSecret": _cluster_external_secret,
    "VirtualService": _virtual_service,
    "NodeSet": _slurm_pods,
    "LoginSet": _slurm_pods,
}
