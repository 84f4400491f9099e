"""Checks of Kubernetes' own policy objects: quotas, limits, priorities, runtimes, namespaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any

from common import yaml
from contract import quantities
from profiles.policies import node_labels


class Judge:
    """Collects what is wrong with one object; paths are within it."""

    def __init__(self, problem: Callable[[yaml.Path, str, str], None], warning: Callable[[yaml.Path, str, str], None]):
        self._problem, self._warning = problem, warning
        self.problems: list[str] = []

    def refuse(self, path: yaml.Path, message: str, code: str = "bad-object") -> None:
        self.problems.append(message)
        self._problem(path, code, message)

    def warn(self, path: yaml.Path, message: str, code: str) -> None:
        self._warning(path, code, message)

    # What many kinds ask
    def mapping(self, path: yaml.Path, raw: Any, *, required: bool = False) -> Mapping[str, Any]:
        if raw is None and not required:
            return {}
        if not isinstance(raw, dict) or (required and not raw):
            self.refuse(path, "must be a mapping" + (" with at least one entry" if required else ""))
            return {}
        return raw

    def items(self, path: yaml.Path, raw: Any, *, required: bool = False) -> list[Any]:
        if raw is None and not required:
            return []
        if not isinstance(raw, list) or (required and not raw):
            self.refuse(path, "must be a list" + (" with at least one item" if required else ""))
            return []
        return raw

    def known(self, path: yaml.Path, raw: Mapping[str, Any], fields: Collection[str]) -> None:
        for name in raw.keys() - set(fields):
            message = f"is not known here; there are {', '.join(sorted(fields))}"
            self.refuse((*path, name), message, code="unknown-field")

    def one_of(self, path: yaml.Path, raw: Any, choices: Collection[str]) -> None:
        if raw is not None and raw not in choices:
            self.refuse(path, f"must be one of {', '.join(choices)}")

    def boolean(self, path: yaml.Path, raw: Any) -> None:
        if raw is not None and not isinstance(raw, bool):
            self.refuse(path, "must be true or false")

    def whole(self, path: yaml.Path, raw: Any, least: int, most: int) -> int | None:
        if raw is None:
            return None
        if isinstance(raw, bool) or not isinstance(raw, int):
            self.refuse(path, "must be a whole number")
        elif not least <= raw <= most:
            self.refuse(path, f"must be {least} to {most}, not {raw}")
        else:
            return raw
        return None

    def amount(self, path: yaml.Path, raw: Any, *, whole: bool = False) -> Decimal | None:
        try:
            return quantities.read(raw, whole=whole)
        except quantities.BadQuantity as error:
            self.refuse(path, str(error), code="bad-quantity")
            return None

    def amounts(self, path: yaml.Path, raw: Any, *, required: bool = False) -> dict[str, Decimal]:
        """Resources and how much of each: extended ones, such as GPUs, come in whole ones."""
        out: dict[str, Decimal] = {}
        for name, value in self.mapping(path, raw, required=required).items():
            if not is_resource(name):
                self.refuse((*path, name), "is not the name of a resource, such as cpu, memory or nvidia.com/gpu")
            elif (amount := self.amount((*path, name), value, whole=is_extended(name))) is not None:
                out[name] = amount
        return out

    def marks(self, path: yaml.Path, raw: Any) -> None:
        """Labels of nodes or of namespaces that something selects by."""
        for key, value in self.mapping(path, raw).items():
            if reason := node_labels.bad_key(key) or node_labels.bad_value(value):
                self.refuse((*path, key), reason, code="bad-mark")


_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?(?:-[0-9]+[KMGT]i)?")


def is_resource(name: str) -> bool:
    return bool(_PLAIN.fullmatch(name)) if "/" not in name else node_labels.bad_key(name) is None


def is_extended(name: str) -> bool:
    """`nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `rdma/hca_a`: what device plugins count."""
    return "/" in name and not name.startswith("kubernetes.io/")


# ── Namespace ─────────────────────────────────────────────────────────────────────────────────────────────────────────
_SECURITY = "pod-security.kubernetes.io/"
_LEVELS = ("privileged", "baseline", "restricted")


def namespace(judge: Judge, raw: Mapping[str, Any]) -> None:
    name = raw["metadata"].get("name")
    if isinstance(name, str) and (name == "default" or name.startswith("kube-")):
        judge.refuse(("metadata", "name"), f"{name} belongs to Kubernetes: name it in an object's namespace instead")
    labels = raw["metadata"].get("labels")
    for key, value in labels.items() if isinstance(labels, dict) else ():
        mode = key.removeprefix(_SECURITY) if key.startswith(_SECURITY) else ""
        if mode in ("enforce", "audit", "warn"):
            judge.one_of(("metadata", "labels", key), value, _LEVELS)
        elif key == "kubernetes.io/metadata.name":
            judge.refuse(("metadata", "labels", key), "is written by Kubernetes")


# ── ResourceQuota ─────────────────────────────────────────────────────────────────────────────────────────────────────
_COUNTED = frozenset({
    "pods", "services", "services.loadbalancers", "services.nodeports", "replicationcontrollers", "resourcequotas",
    "secrets", "configmaps", "persistentvolumeclaims",
})  # fmt: skip
_MEASURED = frozenset({
    "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage",
    "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
})  # fmt: skip
_PAGES = re.compile(r"(?:requests\.)?hugepages-[1-9][0-9]{0,3}[KMG]i")
_OBJECTS = re.compile(r"count/[a-z0-9-]{1,63}(?:\.[a-z0-9.-]{1,200})?")
_CLASSES = re.compile(r"[a-z0-9.-]{1,200}\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)")
_DEVICES = re.compile(r"[a-z0-9.-]{1,200}\.deviceclass\.resource\.k8s\.io/devices")
_SCOPES = (
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)  # fmt: skip
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def resource_quota(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("hard", "scopes", "scopeSelector"))
    hard = judge.mapping(("spec", "hard"), spec.get("hard"), required=bool(spec))
    for name, value in hard.items():
        path: yaml.Path = ("spec", "hard", name)
        if reason := _bad_quota(name):
            judge.refuse(path, reason, code="bad-resource")
            continue
        extended = name.startswith("requests.") and "/" in name
        counted = name in _COUNTED or bool(_OBJECTS.fullmatch(name) or _DEVICES.fullmatch(name))
        judge.amount(path, value, whole=extended or counted or name.endswith("/persistentvolumeclaims"))
    for index, scope in enumerate(judge.items(("spec", "scopes"), spec.get("scopes"))):
        judge.one_of(("spec", "scopes", index), scope if isinstance(scope, str) else "", _SCOPES)
    selector = judge.mapping(("spec", "scopeSelector"), spec.get("scopeSelector"))
    judge.known(("spec", "scopeSelector"), selector, ("matchExpressions",))
    at: yaml.Path = ("spec", "scopeSelector", "matchExpressions")
    for index, item in enumerate(judge.items(at, selector.get("matchExpressions"))):
        expression = judge.mapping((*at, index), item, required=True)
        judge.known((*at, index), expression, ("scopeName", "operator", "values"))
        judge.one_of((*at, index, "scopeName"), expression.get("scopeName") or "", _SCOPES)
        judge.one_of((*at, index, "operator"), expression.get("operator") or "", _OPERATORS)


def _bad_quota(name: str) -> str | None:
    if name in _COUNTED or name in _MEASURED or any(p.fullmatch(name) for p in (_PAGES, _OBJECTS, _CLASSES, _DEVICES)):
        return None
    if name.startswith("requests.") and node_labels.bad_key(name.removeprefix("requests.")) is None and "/" in name:
        return None
    if "/" in name and node_labels.bad_key(name.removeprefix("limits.")) is None:
        bare = name.removeprefix("limits.")
        return f"extended resources have requests only: write requests.{bare}"
    return "is not a resource that a quota counts, such as requests.nvidia.com/gpu, requests.cpu or pods"


# ── LimitRange ────────────────────────────────────────────────────────────────────────────────────────────────────────
_TYPES = ("Container", "Pod", "PersistentVolumeClaim")
_ORDER = ("min", "defaultRequest", "default", "max")
"""Of one resource, none may be above one that follows."""


def limit_range(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("limits",))
    for index, item in enumerate(judge.items(("spec", "limits"), spec.get("limits"), required=bool(spec))):
        path: yaml.Path = ("spec", "limits", index)
        limit = judge.mapping(path, item, required=True)
        judge.known(path, limit, ("type", *_ORDER, "maxLimitRequestRatio"))
        judge.one_of((*path, "type"), limit.get("type") or "", _TYPES)
        for name in ("default", "defaultRequest"):
            if limit.get("type") == "Pod" and limit.get(name):
                judge.refuse((*path, name), "is for containers: a pod as a whole has none")
        amounts = {name: judge.amounts((*path, name), limit.get(name)) for name in _ORDER}
        judge.amounts((*path, "maxLimitRequestRatio"), limit.get("maxLimitRequestRatio"))
        _in_order(judge, path, amounts)


def _in_order(judge: Judge, path: yaml.Path, amounts: Mapping[str, Mapping[str, Decimal]]) -> None:
    for lower, name in enumerate(_ORDER):
        for resource, amount in amounts[name].items():
            for other in _ORDER[lower + 1 :]:
                above = amounts[other].get(resource)
                if above is not None and amount > above:
                    judge.refuse((*path, name, resource), f"is above {other}, which is {above.normalize():f}")


# ── PriorityClass, RuntimeClass ───────────────────────────────────────────────────────────────────────────────────────
HIGHEST_PRIORITY = 1_000_000_000
LOWEST_PRIORITY = -(2**31)


def priority_class(judge: Judge, raw: Mapping[str, Any]) -> None:
    value = raw.get("value")
    if value is None:
        judge.refuse(("value",), "must be a whole number: pods with more go before pods with less")
    elif isinstance(value, int) and not isinstance(value, bool) and value > HIGHEST_PRIORITY:
        message = f"above {HIGHEST_PRIORITY} is reserved for Kubernetes' own system-* classes"
        judge.refuse(("value",), message, code="reserved")
    else:
        judge.whole(("value",), value, LOWEST_PRIORITY, HIGHEST_PRIORITY)
    if str(raw["metadata"].get("name")).startswith("system-"):
        judge.refuse(("metadata", "name"), "names with system- belong to Kubernetes", code="reserved")
    judge.boolean(("globalDefault",), raw.get("globalDefault"))
    judge.one_of(("preemptionPolicy",), raw.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"))
    if not isinstance(raw.get("description"), str | None):
        judge.refuse(("description",), "must be text; put it in quotes")


_HANDLER = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def runtime_class(judge: Judge, raw: Mapping[str, Any]) -> None:
    handler = raw.get("handler")
    if not isinstance(handler, str) or not _HANDLER.fullmatch(handler):
        judge.refuse(("handler",), "must be the runtime's name in containerd's configuration, such as nvidia")
    overhead = judge.mapping(("overhead",), raw.get("overhead"))
    judge.known(("overhead",), overhead, ("podFixed",))
    judge.amounts(("overhead", "podFixed"), overhead.get("podFixed"))
    scheduling = judge.mapping(("scheduling",), raw.get("scheduling"))
    judge.known(("scheduling",), scheduling, ("nodeSelector", "tolerations"))
    judge.marks(("scheduling", "nodeSelector"), scheduling.get("nodeSelector"))
    tolerations(judge, ("scheduling", "tolerations"), scheduling.get("tolerations"))


def tolerations(judge: Judge, path: yaml.Path, raw: Any) -> None:
    for index, item in enumerate(judge.items(path, raw)):
        toleration = judge.mapping((*path, index), item)
        judge.known((*path, index), toleration, ("key", "operator", "value", "effect", "tolerationSeconds"))
        judge.one_of((*path, index, "operator"), toleration.get("operator"), ("Equal", "Exists"))
        judge.one_of((*path, index, "effect"), toleration.get("effect"), ("", *node_labels.EFFECTS))
