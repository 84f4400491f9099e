"""Setpoint's label on policy objects: which are its own, and whose among its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.fleet import Fleet, NotFound, ObjectRef
from clusters.kube import managed_fields
from components.policies.prepared_objects import PreparedObject
from contract import names
from profiles.content.cluster import WantedObject

MARK = f"{names.GROUP}/policy"
"""A label on every object that Setpoint applies, with its owner: it is ours even where a profile asks for no more than
its existence, and it belongs to that owner alone among our rollouts."""


def mark_of(pool_id: int) -> str:
    """Return the value of MARK on objects that this pool brought."""
    return f"pool-{pool_id}"


def owner(fleet: Fleet, wanted: WantedObject) -> str:
    """Return the owner among Setpoint's own: the value of our label.

    Empty where the object is not there, or not ours.
    """
    live = live_of(fleet, ObjectRef.of(wanted.manifest))
    return str(_labels(live).get(MARK, "")) if live else ""


def _labels(live: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the labels of an object that Setpoint applied."""
    labels: Mapping[str, Any] = (managed_fields.fields(live).get("metadata") or {}).get("labels") or {}
    return labels


def marked(manifest: Mapping[str, Any], owner: str) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), MARK: owner}}}


def is_ours(policy: PreparedObject, live: Mapping[str, Any]) -> bool:
    """Return whether it still is the object that was applied.

    It must be Setpoint's, of the same owner, and not another by its name.
    """
    is_same = not policy.uid or uid_of(live) == policy.uid
    return bool(is_same and _labels(live).get(MARK) == policy.manifest["metadata"]["labels"][MARK])


def live_of(fleet: Fleet, ref: ObjectRef) -> dict[str, Any] | None:
    try:
        return fleet.policy(ref)
    except NotFound:
        return None


def uid_of(raw: Mapping[str, Any]) -> str:
    return str((raw.get("metadata") or {}).get("uid", ""))
