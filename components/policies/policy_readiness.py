"""Readiness of policy objects that are there: what the controller of each kind answers in the status.

Sources: the API types of each kind's own project, named in `profiles.policies`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clusters.fleet import Fleet, FleetRefused, NotFound, ObjectRef
from contract import quantities

_CLASS = "storage.k8s.io/v1"


def status_of(live: Mapping[str, Any]) -> Mapping[str, Any]:
    status: Mapping[str, Any] = live.get("status") or {}
    return status


def _condition(live: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    conditions = status_of(live).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == name), {})


def lacks(live: Mapping[str, Any], name: str, words: str) -> str:
    """Explain that a condition is not true yet, with its controller's message."""
    condition = _condition(live, name)
    if condition.get("status") == "True":
        return ""
    why = str(condition.get("message") or condition.get("reason") or "")
    return f"is not {words} yet{f': {why[:300]}' if why else ''}."


# ── Queues ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def queue(fleet: Fleet, live: Mapping[str, Any]) -> str:
    state = status_of(live).get("state", "Open")
    return "" if state == "Open" else f"is {state}, not Open."


def cluster_queue(fleet: Fleet, live: Mapping[str, Any]) -> str:
    return lacks(live, "Active", "active")


def hyper_node(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Volcano's controller counts its nodes; without any, no gang is placed by it."""
    return "" if status_of(live).get("nodeCount") else "has no node yet: does any have that name or those labels?"


# ── Storage ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def volume(fleet: Fleet, live: Mapping[str, Any]) -> str:
    phase = status_of(live).get("phase") or "Pending"
    if phase in ("Available", "Bound", "Released"):
        return ""
    why = str(status_of(live).get("message") or "")
    return f"is {phase}{f': {why[:300]}' if why else ''}."


def claim(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """A claim whose class waits for the first pod is as it should be while it is pending."""
    phase, spec = status_of(live).get("phase") or "Pending", live.get("spec") or {}
    if phase == "Bound":
        return ""
    if phase == "Pending" and (name := spec.get("storageClassName")) and not spec.get("volumeName"):
        try:
            by = fleet.policy(ObjectRef(_CLASS, "StorageClass", str(name)))
        except NotFound:
            return f"is pending: there is no StorageClass {name}."
        if by.get("volumeBindingMode") == "WaitForFirstConsumer":
            return ""
    return "is not bound to a volume yet." if phase == "Pending" else f"is {phase}: its volume is gone."


def holds_volume(live: Mapping[str, Any]) -> str:
    """A volume that a claim had holds its data; one that none had yet goes without a loss."""
    is_fresh = (status_of(live).get("phase") or "Pending") in ("Pending", "Available")
    return "" if is_fresh else "what a claim stored in it is not ours to delete."


def holds_claim(live: Mapping[str, Any]) -> str:
    is_fresh = (status_of(live).get("phase") or "Pending") == "Pending"
    return "" if is_fresh else "its volume, and what is stored there, would go with it."


# ── Networks and autoscalers ──────────────────────────────────────────────────────────────────────────────────────────
def cilium_network_policy(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Cilium before 1.16 says nothing of it; what it says of an invalid one is that no agent enforces it."""
    return lacks(live, "Valid", "valid") if _condition(live, "Valid").get("status") == "False" else ""


def horizontal(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Its target is there and can be scaled. That its metrics come is not waited for: they may need running pods."""
    return lacks(live, "AbleToScale", "able to scale its target")


def vertical(fleet: Fleet, live: Mapping[str, Any]) -> str:
    condition = _condition(live, "ConfigUnsupported")
    return f"is not supported: {condition.get('message')}." if condition.get("status") == "True" else ""


# ── NICs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
_SRIOV, _STATES = "sriovnetwork.openshift.io/v1", "sriovnetworknodestates"
_PLUGINS = (("rdmaSharedDevicePlugin", "configList", "rdma"), ("sriovDevicePlugin", "resourceList", ""))
"""Part of the policy, list in its configuration, prefix of its resources."""
_SHOWN = 3


def nic_cluster_policy(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Its own word, part by part; and each resource that its device plugins are told to offer, on some node."""
    status = status_of(live)
    if status.get("state") != "ready":
        parts = status.get("appliedStates") or ()
        behind = [str(part.get("name")) for part in parts if part.get("state") not in ("ready", "ignore")]
        shown = f": {', '.join(behind[:_SHOWN])}" if behind else ""
        return f"is {status.get('state') or 'not looked at by the operator yet'}{shown}."
    wanted = list(dict.fromkeys(offered(live.get("spec") or {})))
    if not wanted:
        return ""
    nodes = fleet.list("nodes").items
    lacking = [name for name in wanted if not any(offers(node, name) for node in nodes)]
    return f"is ready, and no node offers {', '.join(lacking[:_SHOWN])} yet." if lacking else ""


def offered(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the resources that the policy's device plugins are configured for; `/name`: of any prefix.

    The plugin of shared devices takes the prefix rdma where none is given, the one of virtual functions another in each
    release of the operator.
    """
    for plugin, many, prefix in (
        ("rdmaSharedDevicePlugin", "configList", "rdma"),
        ("sriovDevicePlugin", "resourceList", ""),
    ):
        try:
            config = json.loads((spec.get(plugin) or {}).get("config") or "{}")
        except ValueError:
            continue
        for entry in (config.get(many) or ()) if isinstance(config, dict) else ():
            if isinstance(entry, dict) and entry.get("resourceName"):
                yield f"{entry.get('resourcePrefix') or prefix}/{entry['resourceName']}"


def offers(node: Mapping[str, Any], resource: str) -> bool:
    """Return whether the node has one to allocate at all. `resource`: `/name` is one of any prefix."""
    amounts: Mapping[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    return any(
        quantities.count(amount) > 0
        for name, amount in amounts.items()
        if name == resource or (resource.startswith("/") and name.endswith(resource))
    )


def sriov_node_policy(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Explain what is missing on a node that has a NIC of it: the operator's work, or the virtual functions offered."""
    meta, spec = live["metadata"], live.get("spec") or {}
    try:
        states = fleet.custom(_SRIOV, _STATES)
    except FleetRefused as refused:
        return f"cannot be looked at node by node: {refused}."
    mine = [state for state in states if state["metadata"].get("namespace") == meta.get("namespace")]
    chosen = {str(state["metadata"]["name"]): state for state in mine if _is_of(state, str(meta["name"]))}
    if not chosen:
        return "has no NIC on any node yet that it selects."
    for name, state in sorted(chosen.items()):
        status = status_of(state)
        if (sync := status.get("syncStatus")) != "Succeeded":
            why = str(status.get("lastSyncError") or "")
            return f"is {sync or 'not begun'} on node {name}{f': {why[:200]}' if why else ''}."
    if not spec.get("numVfs"):
        return ""
    resource = f"/{spec.get('resourceName')}"
    lacking = [name for name in sorted(chosen) if not offers(fleet.node(name), resource)]
    return f"is done, and node {', '.join(lacking[:_SHOWN])} does not offer {resource[1:]} yet." if lacking else ""


def _is_of(state: Mapping[str, Any], policy: str) -> bool:
    """Return whether the operator gave the node some NIC by this policy."""
    interfaces = (state.get("spec") or {}).get("interfaces") or ()
    groups = [group for interface in interfaces for group in interface.get("vfGroups") or ()]
    return any(group.get("policyName") == policy for group in groups)


def sriov_network(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """The operator makes a NetworkAttachmentDefinition of its name, which is what pods ask for."""
    meta = live["metadata"]
    space = str((live.get("spec") or {}).get("networkNamespace") or meta["namespace"])
    made = ObjectRef("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", str(meta["name"]), space)
    try:
        fleet.policy(made)
    except NotFound:
        return f"has no NetworkAttachmentDefinition {made} yet."
    return ""


# ── Backups, other clusters ───────────────────────────────────────────────────────────────────────────────────────────
def schedule(fleet: Fleet, live: Mapping[str, Any]) -> str:
    phase = status_of(live).get("phase") or "New"
    if phase == "Enabled":
        return ""
    errors = status_of(live).get("validationErrors") or ()
    return f"is {phase}, not Enabled{f': {errors[0]}' if errors else ''}."


def kueue_active(fleet: Fleet, live: Mapping[str, Any]) -> str:
    return lacks(live, "Active", "active")
