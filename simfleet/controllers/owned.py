"""Fields that controllers of workloads read from their objects and write into those they own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from simfleet import manifests
from simfleet.apiserver.store import Raw, Stored

TEMPLATE_HASH, REVISION_HASH = "pod-template-hash", "controller-revision-hash"
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def is_ours(raw: Mapping[str, Any]) -> bool:
    return "template" in (raw.get("spec") or {})


def hash_of(template: Mapping[str, Any]) -> str:
    value = manifests.hash_text(json.dumps(template, sort_keys=True))
    letters = []
    for _ in range(9):
        value, digit = divmod(value, len(ALPHABET))
        letters.append(ALPHABET[digit])
    return "".join(letters)


def share(value: int | str, whole: int, *, is_up: bool = False) -> int:
    """A count, or a percentage of `whole`, rounded down unless `is_up`."""
    if not isinstance(value, str):
        return value
    part = int(value.rstrip("%")) * whole
    return -(-part // 100) if is_up else part // 100


def since(conditions: list[Raw], old: Mapping[str, Any], at: str) -> list[Raw]:
    """Set the conditions' transition times: those of conditions that were the same before, `at` for the others."""
    had = {(c["type"], c["status"]): c for c in (old.get("status") or {}).get("conditions") or ()}
    return [
        c | {"lastTransitionTime": had.get((c["type"], c["status"]), {}).get("lastTransitionTime", at)}
        for c in conditions
    ]


def true_since(type_: str, at: str) -> Raw:
    return {"type": type_, "status": "True", "lastTransitionTime": at, "lastProbeTime": at}


def reference(owner: Stored, kind: str) -> Raw:
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "name": owner.key[1],
        "uid": owner.raw["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def placement_of(node: Mapping[str, Any]) -> tuple[Any, Any]:
    return node["metadata"].get("labels"), node["spec"].get("taints")


def replicas_of(stored: Stored) -> int:
    return int(stored.raw["spec"].get("replicas", 1))


def status_number(stored: Stored, field: str) -> int:
    return int((stored.raw.get("status") or {}).get(field, 0))


def revision_of(stored: Stored) -> int:
    return int((stored.raw["metadata"].get("annotations") or {}).get("deployment.kubernetes.io/revision", 0))


def ordinal_of(name: str) -> int:
    return int(name.rpartition("-")[2])
