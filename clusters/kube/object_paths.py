"""Paths of the kinds that are listed and watched, and names as segments of paths."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusters import objects
from clusters.fleet import FleetRefused, ObjectKind
from contract import names

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
TUNINGS = f"/apis/{names.API_VERSION}/{names.PLURAL}"
_RESOURCE = "/apis/resource.k8s.io/v1"
PATHS: dict[ObjectKind, str] = {
    "nodes": NODES,
    "pods": "/api/v1/pods",
    "nodetunings": TUNINGS,
    "leases": f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases",
    "resourceslices": f"{_RESOURCE}/resourceslices",
    "resourceclaims": f"{_RESOURCE}/resourceclaims",
}
SELECTED: dict[ObjectKind, Mapping[str, str]] = {
    "resourceslices": {"fieldSelector": f"spec.driver={objects.DRA_DRIVER}"}
}
"""Every node has slices of its own, and those of network cards are as many again."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def segment(name: str) -> str:
    """A name as one segment of a URL's path. Raises FleetRefused: `..` or a slash would address something else."""
    if not _NAME.fullmatch(name):
        raise FleetRefused(f"{name[:80]!r} is not the name of a Kubernetes object")
    return name
