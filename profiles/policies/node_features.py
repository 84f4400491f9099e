"""Checks of NodeFeatureRules: rules by which Node Feature Discovery labels nodes, so they obey what labels of nodes do.

Source: Node Feature Discovery's API nfd.k8s-sigs.io/v1alpha1 (v0.18), its customization guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.catalog import known_labels
from profiles.policies import node_labels
from profiles.policies.kubernetes import Judge, is_resource

MAX_RULES = 64
OWN = ("feature.node.kubernetes.io", "profile.node.kubernetes.io")
"""Of what is reserved for Kubernetes, Node Feature Discovery writes below these."""
_RULE = (
    "name", "labels", "annotations", "extendedResources", "taints", "vars", "varsTemplate", "matchFeatures", "matchAny",
)  # fmt: skip
_COUNTED = ("nvidia.com", "amd.com", "intel.com", "rdma", "mellanox.com")


def node_feature_rule(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("rules",))
    rules = judge.items(("spec", "rules"), spec.get("rules"), required=bool(spec))
    if len(rules) > MAX_RULES:
        judge.refuse(("spec", "rules"), f"holds {len(rules)}; at most {MAX_RULES} are accepted")
    for index, item in enumerate(rules[:MAX_RULES]):
        path: yaml.Path = ("spec", "rules", index)
        rule = judge.mapping(path, item, required=True)
        if "labelsTemplate" in rule:
            message = "makes labels that are known only on the node: name each under labels"
            judge.refuse((*path, "labelsTemplate"), message)
        judge.known(path, {name: None for name in rule if name != "labelsTemplate"}, _RULE)
        if rule and (not isinstance(rule.get("name"), str) or not rule["name"]):
            judge.refuse((*path, "name"), "must be the rule's name")
        for part in ("labels", "annotations"):
            for key, value in judge.mapping((*path, part), rule.get(part)).items():
                if reason := _bad_mark(key) or _bad_value(value, part):
                    judge.refuse((*path, part, key), reason, code="bad-mark")
        for name, value in judge.mapping((*path, "extendedResources"), rule.get("extendedResources")).items():
            if reason := _bad_resource(name) or _bad_value(value, "annotations"):
                judge.refuse((*path, "extendedResources", name), reason)
        for number, taint in enumerate(judge.items((*path, "taints"), rule.get("taints"))):
            if reason := _bad_taint(taint):
                judge.refuse((*path, "taints", number), reason)


def _domain(key: str) -> str:
    return key.rpartition("/")[0]


def _bad_mark(key: Any) -> str | None:
    if reason := node_labels.bad_key(key):
        return reason
    if known := known_labels.get(key):
        return f"{known.program} acts upon it; want it under the profile's labels, where a plan says what it does"
    return None if _is_own(key) else node_labels.reserved(key)


def _is_own(key: str) -> bool:
    return not _domain(key) or any(node_labels.within(_domain(key), own) for own in OWN)


def _bad_value(value: Any, part: str) -> str | None:
    """`@pci.device.vendor` is the value of a feature."""
    if isinstance(value, str) and (value.startswith("@") or part == "annotations"):
        return None
    return node_labels.bad_value(value)


def _bad_resource(name: str) -> str | None:
    if not is_resource(name):
        return "is not the name of a resource"
    domain = _domain(name)
    if any(node_labels.within(domain, vendor) for vendor in _COUNTED):
        return f"{domain}/ is counted by a device plugin, and pods would be placed where there is no device"
    return None if _is_own(name) else node_labels.reserved(name)


def _bad_taint(item: Any) -> str | None:
    if not isinstance(item, dict):
        return "a taint has key, value and effect"
    key = item.get("key")
    if item.get("effect") == "NoExecute":
        return "NoExecute evicts running pods: want it under the profile's taints, where a plan counts them"
    is_own = node_labels.bad_key(key) is None and _is_own(str(key))
    return node_labels.taint({**item, "key": "example.org/any"} if is_own else item)
