"""Autoscalers of a profile that would work against each other on one workload.

Sources: kubernetes/autoscaler, vertical-pod-autoscaler/docs/known-limitations.md (not with a HorizontalPodAutoscaler on
the same resource, CPU or memory); kubernetes.io, Horizontal Pod Autoscaling (without metrics it scales by CPU; the pods
of one target belong to one autoscaler).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from profiles.content.cluster import WantedObject

HORIZONTAL, VERTICAL = "HorizontalPodAutoscaler", "VerticalPodAutoscaler"
RESOURCES = ("cpu", "memory")
_RESOURCE_METRICS = {"Resource": "resource", "ContainerResource": "containerResource"}

Rivalry = tuple[WantedObject, str, str]
"""The object to name; the path of its target; what is wrong, as half a sentence after its title."""


def among(policies: Iterable[WantedObject]) -> Iterator[Rivalry]:
    """Yield each autoscaler that works against another one of the profile."""
    by_target: dict[tuple[str, ...], list[WantedObject]] = {}
    for policy in policies:
        if policy.kind in (HORIZONTAL, VERTICAL):
            by_target.setdefault(_target(policy), []).append(policy)
    for target, scalers in by_target.items():
        workload = f"{target[2]} {target[1]}/{target[3]}"
        for kind, path in ((HORIZONTAL, "spec.scaleTargetRef"), (VERTICAL, "spec.targetRef")):
            alike = [scaler for scaler in scalers if scaler.kind == kind]
            for other in alike[1:]:
                yield other, path, f"scales {workload}, and so does {alike[0].title}: one of them undoes the other"
        yield from _by_one_resource(workload, scalers)


def _by_one_resource(workload: str, scalers: list[WantedObject]) -> Iterator[Rivalry]:
    for vertical in (scaler for scaler in scalers if scaler.kind == VERTICAL):
        for horizontal in (scaler for scaler in scalers if scaler.kind == HORIZONTAL):
            if both := sorted(_resized(_spec(vertical)) & _scaled_by(_spec(horizontal))):
                message = (
                    f"resizes the pods of {workload} by {' and '.join(both)}, by which {horizontal.title} counts them: "
                    "let one of them go by another metric (controlledResources), or set updateMode to Off"
                )
                yield vertical, "spec.targetRef", message


def _spec(policy: WantedObject) -> Mapping[str, Any]:
    return policy.body.get("spec") or {}


def _target(policy: WantedObject) -> tuple[str, ...]:
    """Group of the API, namespace, kind and name: versions of one group name the same workload."""
    spec = _spec(policy)
    target = spec.get("scaleTargetRef" if policy.kind == HORIZONTAL else "targetRef") or {}
    group = str(target.get("apiVersion", "")).rpartition("/")[0]
    return (group, policy.namespace, str(target.get("kind")), str(target.get("name")))


def _scaled_by(spec: Mapping[str, Any]) -> set[str]:
    """Return the resources by which a horizontal one counts pods; one without metrics goes by CPU."""
    metrics = spec.get("metrics")
    if not metrics:
        return {"cpu"}
    fields = ((metric, _RESOURCE_METRICS.get(metric.get("type", ""), "")) for metric in metrics)
    return {str((metric.get(field) or {}).get("name")) for metric, field in fields if field} & set(RESOURCES)


def _resized(spec: Mapping[str, Any]) -> set[str]:
    """Return the resources that a vertical one changes: none where it only recommends."""
    if (spec.get("updatePolicy") or {}).get("updateMode") == "Off":
        return set()
    policies = (spec.get("resourcePolicy") or {}).get("containerPolicies") or []
    out: set[str] = set()
    for policy in policies:
        if policy.get("mode") != "Off":
            out |= set(policy.get("controlledResources", RESOURCES))
    covers_all = any(policy.get("containerName") == "*" for policy in policies)
    return (out if covers_all else out | set(RESOURCES)) & set(RESOURCES)
