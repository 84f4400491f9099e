"""Admission: the two policies of deploy/, defaults and pruning, before an object is stored."""

from __future__ import annotations

import base64
from typing import Any

from contract import names
from simfleet import manifests
from simfleet.apiserver.callers import CONTROLLERS, Caller
from simfleet.apiserver.resources import RESOURCES
from simfleet.apiserver.store import ApiError, Raw, Store, Stored

_WHOSE = ("finalizers", "ownerReferences")


def check(store: Store, caller: Caller, plural: str, old: Stored | None, new: Raw, *, subresource: str = "") -> None:
    """The two admission policies, while they are installed. Raises ApiError 403."""
    if plural != "nodetunings":
        return
    name = new["metadata"]["name"]
    if caller.user == names.AGENT_USERNAME:
        if store.find("validatingadmissionpolicies", names.AGENT_POLICY) and caller.node != name:
            raise _denied(plural, name, names.AGENT_POLICY, "an agent may write only its own node's object")
        return
    if not store.find("validatingadmissionpolicies", names.SPEC_POLICY):
        return
    if subresource == "status":
        raise _denied(plural, name, names.SPEC_POLICY, "only the agent of a node writes what the node answers")
    if caller.user in (names.CONTROLLER_USERNAME, CONTROLLERS.user):
        return
    if old is None or old.raw.get("spec") != new.get("spec"):
        raise _denied(plural, name, names.SPEC_POLICY, "only Setpoint may create or change what a node is asked")
    if any((old.raw["metadata"].get(part) or []) != (new["metadata"].get(part) or []) for part in _WHOSE):
        raise _denied(plural, name, names.SPEC_POLICY, "only Setpoint changes whose a NodeTuning is")


def _denied(plural: str, name: str, policy: str, message: str) -> ApiError:
    return ApiError(
        403,
        "Forbidden",
        f"{RESOURCES[plural].qualified} \"{name}\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding "
        f"'{policy}' denied request: {message}",
    )


def prepared(store: Store, caller: Caller, plural: str, raw: Raw, namespace: str, *, suffix: str) -> Raw:
    """Prepare what a client sent for creation. Raises ApiError 404 for a missing namespace, 422."""
    resource = store.resources[plural]
    metadata = {k: v for k, v in (raw.get("metadata") or {}).items() if k not in ("managedFields", "resourceVersion")}
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + suffix
    if not metadata.get("name"):
        raise ApiError(422, "Invalid", "name or generateName is required")
    if resource.namespaced:
        namespace = namespace or metadata.get("namespace", "")
        metadata["namespace"] = namespace
        home = store.find("namespaces", namespace)
        if home is None and not caller.inside:
            raise ApiError(404, "NotFound", f'namespaces "{namespace}" not found')
        if home is not None and "deletionTimestamp" in home.raw["metadata"]:
            what = f'{resource.qualified} "{metadata["name"]}" is forbidden'
            reason = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise ApiError(403, "Forbidden", f"{what}: {reason}")
    elif namespace:
        raise ApiError(400, "BadRequest", f"{resource.qualified} are not namespaced")
    raw = without_nulls(raw | {"metadata": metadata})
    if resource.custom and resource.has_status:
        raw.pop("status", None)
    if plural == "namespaces":
        return namespace_of(raw)
    if plural == "services":
        return _addressed(raw)
    if plural == "persistentvolumeclaims":
        return raw | {"status": {"phase": "Bound"}}
    return defaulted(plural, raw)


def _addressed(raw: Raw) -> Raw:
    """A Service has an address from the start: by its name, from 10.96.0.0/16."""
    spec = {"type": "ClusterIP"} | (raw.get("spec") or {})
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        number = manifests.hash_text(f"{raw['metadata']['namespace']}/{raw['metadata']['name']}")
        spec["clusterIP"] = f"10.96.{number >> 8 & 255}.{number & 255}"
    return raw | {"spec": spec, "status": {"loadBalancer": {}}}


def namespace_of(raw: Raw) -> Raw:
    """A namespace is labeled with its name, and Active."""
    metadata = raw["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return raw | {"metadata": metadata | {"labels": labels}, "status": {"phase": "Active"}}


def defaulted(plural: str, raw: Raw) -> Raw:
    """Remove the empty values that Go's encoder omits."""
    if plural == "secrets":
        return encoded(raw)
    if plural != "nodes":
        return raw
    spec = dict(raw.get("spec") or {})
    taints = [{k: v for k, v in t.items() if v or k == "key"} for t in spec.pop("taints", None) or ()]
    return raw | {"spec": spec | ({"taints": taints} if taints else {})}


def encoded(raw: Raw) -> Raw:
    """Texts of a Secret are kept as data."""
    texts = {k: base64.b64encode(str(v).encode()).decode() for k, v in (raw.get("stringData") or {}).items()}
    data = {**(raw.get("data") or {}), **texts}
    kept = {k: v for k, v in raw.items() if k not in ("stringData", "data")}
    return {"type": "Opaque"} | kept | ({"data": data} if data else {})


def without_nulls(raw: Any) -> Any:
    """Nulls of fields that are not nullable are dropped."""
    if isinstance(raw, dict):
        return {k: without_nulls(v) for k, v in raw.items() if v is not None}
    return [without_nulls(v) for v in raw] if isinstance(raw, list) else raw
