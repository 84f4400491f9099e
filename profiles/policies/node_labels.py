"""Labels, annotations and taints that a profile may put on nodes. Each check answers what is wrong, or None."""

from __future__ import annotations

import re
from typing import Any

from profiles.catalog import known_labels

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MAX_ANNOTATION = 4096
"""Kubernetes takes 256 KiB for all annotations of an object together; 64 of these are within it."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_OURS = "setpoint.dev"
_FREE_DOMAIN = "node-restriction.kubernetes.io"
_STATES = ("nvidia.com/gpu-driver-upgrade-state", "nvidia.com/ofed-driver-upgrade-state")
"""Which step of a driver's upgrade the operator has come to: writing one makes the operator skip steps."""


def within(domain: str, of: str) -> bool:
    return domain == of or domain.endswith(f".{of}")


def bad_key(key: Any) -> str | None:
    if not isinstance(key, str):
        return "a name must be text"
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return "a name has 1 to 63 letters, digits, '-', '_' or '.', and begins and ends with a letter or digit"
    if slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        return "what comes before the / must be a DNS name"
    return None


def ours(key: str) -> str | None:
    return f"{_OURS}/ is Setpoint's own" if within(key.rpartition("/")[0], _OURS) else None


def reserved(key: str) -> str | None:
    domain = key.rpartition("/")[0]
    if within(domain, _FREE_DOMAIN):
        return None
    if own := ours(key):
        return own
    if within(domain, "feature.node.kubernetes.io"):
        return "feature.node.kubernetes.io/ is written by node feature discovery"
    if within(domain, "kubernetes.io") or within(domain, "k8s.io"):
        return f"kubernetes.io/ and k8s.io/ are reserved; use {_FREE_DOMAIN}/ or a domain of your own"
    if known := known_labels.owner_of_state(key):
        return f"{known.program} answers in it; set {known.key}"
    if key in _STATES or within(domain, "network.nvidia.com"):
        return "it is written by NVIDIA's operators while they upgrade drivers"
    if key.startswith("nvidia.com/gpu.") and known_labels.get(key) is None:
        return "nvidia.com/gpu.* is written by the GPU Operator"
    return None


def bad_value(value: Any) -> str | None:
    if not isinstance(value, str):
        return "its value must be text; put it in quotes"
    if value and not _NAME.fullmatch(value):
        return "a value has at most 63 letters, digits, '-', '_' or '.', and begins and ends with a letter or digit"
    return None


def label(key: Any, value: Any) -> str | None:
    return bad_key(key) or reserved(key) or bad_value(value)


def annotation(key: Any, value: Any) -> str | None:
    if problem := bad_key(key) or reserved(key):
        return problem
    if not isinstance(value, str):
        return "its value must be text; put it in quotes"
    if len(value.encode("utf-8", "replace")) > MAX_ANNOTATION:
        return f"its value is longer than {MAX_ANNOTATION} bytes"
    if any(not (c.isprintable() or c in "\n\t") for c in value):
        return "its value contains a character that cannot be shown"
    return None


def taint(item: Any) -> str | None:
    if not isinstance(item, dict):
        return "a taint has key, value and effect"
    if unknown := sorted(map(str, item.keys() - {"key", "value", "effect"})):
        return f"{unknown[0][:40]!a} is not a part of a taint; there are key, value and effect"
    if problem := bad_key(item.get("key")) or _reserved_taint(item["key"]):
        return f"key: {problem}"
    if problem := bad_value(item.get("value") or ""):
        return f"value: {problem}"
    if item.get("effect") not in EFFECTS:
        return f"effect: must be one of {', '.join(EFFECTS)}"
    return None


def _reserved_taint(key: str) -> str | None:
    """Return the reason as for labels, but `nvidia.com/gpu` and its kin are taints that people set."""
    return None if key.startswith("nvidia.com/") else reserved(key)
