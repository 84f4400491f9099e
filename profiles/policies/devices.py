"""Checks of dynamic resource allocation: classes of devices, and the claims that pods are made with.

Source: Kubernetes' API resource.k8s.io/v1 (1.34 and newer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies.kubernetes import Judge

MAX_SELECTORS = 32
MAX_EXPRESSION = 10 * 1024
MAX_REQUESTS = 32
"""As Kubernetes bounds them."""


def device_class(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("selectors", "config", "extendedResourceName"))
    _selectors(judge, ("spec", "selectors"), spec.get("selectors"))
    if spec and not spec.get("selectors"):
        judge.refuse(("spec", "selectors"), "must have an expression: without one a claim may get any device there is")
    judge.items(("spec", "config"), spec.get("config"))


def claim_template(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("metadata", "spec"))
    inner = judge.mapping(("spec", "spec"), spec.get("spec"), required=bool(spec))
    judge.known(("spec", "spec"), inner, ("devices",))
    at: yaml.Path = ("spec", "spec", "devices")
    devices = judge.mapping(at, inner.get("devices"), required=bool(inner))
    judge.known(at, devices, ("requests", "constraints", "config"))
    requests = judge.items((*at, "requests"), devices.get("requests"), required=bool(devices))
    if len(requests) > MAX_REQUESTS:
        judge.refuse((*at, "requests"), f"holds {len(requests)}; at most {MAX_REQUESTS} are accepted")
    for index, item in enumerate(requests[:MAX_REQUESTS]):
        path: yaml.Path = (*at, "requests", index)
        request = judge.mapping(path, item, required=True)
        judge.known(path, request, ("name", "exactly", "firstAvailable"))
        if request and ("exactly" in request) == ("firstAvailable" in request):
            judge.refuse(path, "must have exactly, or firstAvailable, and not both")
        _wanted(judge, (*path, "exactly"), request.get("exactly"))
        for number, other in enumerate(judge.items((*path, "firstAvailable"), request.get("firstAvailable"))):
            _wanted(judge, (*path, "firstAvailable", number), other)


def _wanted(judge: Judge, path: yaml.Path, raw: Any) -> None:
    if raw is None:
        return
    wanted = judge.mapping(path, raw, required=True)
    if "adminAccess" in wanted:
        message = "reaches devices that other pods hold; only the cluster's administrator gives it"
        judge.refuse((*path, "adminAccess"), message, code="escalation")
    if wanted and (not isinstance(wanted.get("deviceClassName"), str) or not wanted["deviceClassName"]):
        judge.refuse((*path, "deviceClassName"), "must be the name of a DeviceClass")
    judge.one_of((*path, "allocationMode"), wanted.get("allocationMode"), ("ExactCount", "All"))
    judge.whole((*path, "count"), wanted.get("count"), 1, 2**31 - 1)
    _selectors(judge, (*path, "selectors"), wanted.get("selectors"))


def _selectors(judge: Judge, path: yaml.Path, raw: Any) -> None:
    selectors = judge.items(path, raw)
    if len(selectors) > MAX_SELECTORS:
        judge.refuse(path, f"holds {len(selectors)}; at most {MAX_SELECTORS} are accepted")
    for index, item in enumerate(selectors[:MAX_SELECTORS]):
        cel = judge.mapping((*path, index), item, required=True).get("cel")
        expression = cel.get("expression") if isinstance(cel, dict) else None
        if not isinstance(expression, str) or not 0 < len(expression) <= MAX_EXPRESSION:
            message = f"must have cel.expression, of at most {MAX_EXPRESSION:,} characters"
            judge.refuse((*path, index), message)
