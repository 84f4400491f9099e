"""Policy objects of a profile, carried out, and edited by another party."""

from __future__ import annotations

import time

from clusters.fleet import ObjectRef
from components.policies import policy_objects
from profiles.content.content import WantedObject
from profiles.document import schema
from simfleet.apiserver.callers import person

PROFILE = """
policies:
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: gpus, namespace: team-a}
    spec: {hard: {requests.nvidia.com/gpu: "8", pods: "100"}}
  - apiVersion: v1
    kind: Namespace
    metadata: {name: team-a}
  - apiVersion: scheduling.k8s.io/v1
    kind: PriorityClass
    metadata: {name: training}
    value: 10000
"""
QUOTA = ObjectRef("v1", "ResourceQuota", "gpus", "team-a")
PRIORITY = ObjectRef("scheduling.k8s.io/v1", "PriorityClass", "training")


def wanted(text: str = PROFILE) -> tuple[WantedObject, ...]:
    return schema.flatten(schema.parse(text), None, origin="a r1").content.policies


def carry(fleet, prepared, direction="forward", **how) -> list[str]:
    lines: list[str] = []
    ends = {"deadline": time.monotonic() + 60, "stop": lambda: False} | how
    policy_objects.carry_out(fleet, prepared, direction=direction, tell=lines.append, **ends)
    return lines


def edit(cluster, plural, name, change, namespace="") -> None:
    cluster.api.patch(person("alice"), plural, name, change, namespace)
