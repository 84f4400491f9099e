"""When a policy object that is there works: what its controller answers in its status, kind by kind.

Sources: the API types of each kind's own project, named in `profiles.policies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.fleet import Fleet, NotFound, ObjectRef

_CLASS = "storage.k8s.io/v1"


def _status(live: Mapping[str, Any]) -> Mapping[str, Any]:
    status: Mapping[str, Any] = live.get("status") or {}
    return status


def _condition(live: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    conditions = _status(live).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == name), {})


def _lacks(live: Mapping[str, Any], name: str, words: str) -> str:
    """Explain that a condition is not true yet, with its controller's message."""
    condition = _condition(live, name)
    if condition.get("status") == "True":
        return ""
    why = str(condition.get("message") or condition.get("reason") or "")
    return f"is not {words} yet{f': {why[:300]}' if why else ''}."


# ── Queues ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def queue(fleet: Fleet, live: Mapping[str, Any]) -> str:
    state = _status(live).get("state", "Open")
    return "" if state == "Open" else f"is {state}, not Open."


def cluster_queue(fleet: Fleet, live: Mapping[str, Any]) -> str:
    return _lacks(live, "Active", "active")


def hyper_node(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Volcano's controller counts its nodes; without any, no gang is placed by it."""
    return "" if _status(live).get("nodeCount") else "has no node yet: does any have that name or those labels?"


# ── Storage ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def volume(fleet: Fleet, live: Mapping[str, Any]) -> str:
    phase = _status(live).get("phase") or "Pending"
    if phase in ("Available", "Bound", "Released"):
        return ""
    why = str(_status(live).get("message") or "")
    return f"is {phase}{f': {why[:300]}' if why else ''}."


def claim(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """A claim whose class waits for the first pod is as it should be while it is pending."""
    phase, spec = _status(live).get("phase") or "Pending", live.get("spec") or {}
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
    is_fresh = (_status(live).get("phase") or "Pending") in ("Pending", "Available")
    return "" if is_fresh else "what a claim stored in it is not ours to delete."


def holds_claim(live: Mapping[str, Any]) -> str:
    is_fresh = (_status(live).get("phase") or "Pending") == "Pending"
    return "" if is_fresh else "its volume, and what is stored there, would go with it."


# ── Networks and autoscalers ──────────────────────────────────────────────────────────────────────────────────────────
def cilium_network_policy(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Cilium before 1.16 says nothing of it; what it says of an invalid one is that no agent enforces it."""
    return _lacks(live, "Valid", "valid") if _condition(live, "Valid").get("status") == "False" else ""


def horizontal(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Its target is there and can be scaled. That its metrics come is not waited for: they may need running pods."""
    return _lacks(live, "AbleToScale", "able to scale its target")


def vertical(fleet: Fleet, live: Mapping[str, Any]) -> str:
    condition = _condition(live, "ConfigUnsupported")
    return f"is not supported: {condition.get('message')}." if condition.get("status") == "True" else ""
