"""Checks of autoscalers of pods: how many there are, and how large.

Sources: kubernetes.io (horizontal-pod-autoscale), the Vertical Pod Autoscaler's API autoscaling.k8s.io/v1 (v1.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies.kubernetes import Judge

_HORIZONTAL = ("scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior")
_VERTICAL = ("targetRef", "updatePolicy", "resourcePolicy", "recommenders", "startupBoost")
UPDATE_MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "Auto")
MOST = 2**31 - 1


def horizontal(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _HORIZONTAL)
    _target(judge, ("spec", "scaleTargetRef"), spec.get("scaleTargetRef"))
    least = judge.whole(("spec", "minReplicas"), spec.get("minReplicas"), 1, MOST)
    if spec and spec.get("maxReplicas") is None:
        judge.refuse(("spec", "maxReplicas"), "must be a whole number: never more pods than these")
    most = judge.whole(("spec", "maxReplicas"), spec.get("maxReplicas"), 1, MOST)
    if most is not None and most < (least or 1):
        judge.refuse(("spec", "maxReplicas"), f"is below minReplicas, which is {least}")
    judge.items(("spec", "metrics"), spec.get("metrics"))
    judge.mapping(("spec", "behavior"), spec.get("behavior"))


def vertical(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _VERTICAL)
    _target(judge, ("spec", "targetRef"), spec.get("targetRef"))
    update = judge.mapping(("spec", "updatePolicy"), spec.get("updatePolicy"))
    if spec and update.get("updateMode") is None:
        message = "must be said, such as Off or Initial: without it running pods are evicted to be resized"
        judge.refuse(("spec", "updatePolicy", "updateMode"), message)
    judge.one_of(("spec", "updatePolicy", "updateMode"), update.get("updateMode"), UPDATE_MODES)
    judge.mapping(("spec", "resourcePolicy"), spec.get("resourcePolicy"))


def _target(judge: Judge, path: yaml.Path, raw: Any) -> None:
    target = judge.mapping(path, raw, required=True)
    judge.known(path, target, ("apiVersion", "kind", "name"))
    for name in ("apiVersion", "kind", "name"):
        if target and (not isinstance(target.get(name), str) or not target[name]):
            judge.refuse((*path, name), "must be that of the workload to scale")
