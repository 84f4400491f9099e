"""Checks of network policies and of networks that pods are attached to besides their own.

Sources: kubernetes.io (network-policies), Cilium's API cilium.io/v2 (v1.18), the network attachment definition of the
Network Plumbing Working Group (v1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from common import yaml
from profiles.policies.kubernetes import Judge

_POLICY = ("podSelector", "policyTypes", "ingress", "egress")
_CILIUM = (
    "description", "enableDefaultDeny", "endpointSelector", "ingress", "ingressDeny", "egress", "egressDeny", "labels",
    "log",
)  # fmt: skip
MAX_RULES = 100


def network_policy(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _POLICY)
    if spec and not isinstance(spec.get("podSelector"), dict):
        judge.refuse(("spec", "podSelector"), "must be a label selector; {} selects all pods of the namespace")
    types = judge.items(("spec", "policyTypes"), spec.get("policyTypes"))
    for index, name in enumerate(types):
        judge.one_of(("spec", "policyTypes", index), name if isinstance(name, str) else "", ("Ingress", "Egress"))
    _rules(judge, ("spec", "ingress"), spec.get("ingress"))
    _rules(judge, ("spec", "egress"), spec.get("egress"))
    if "Egress" in types and not spec.get("egress"):
        message = "lets the selected pods reach nothing, name servers included"
        judge.warn(("spec", "policyTypes"), message, "denies-all")


def cilium_network_policy(judge: Judge, raw: Mapping[str, Any]) -> None:
    if raw.get("spec") is None and raw.get("specs") is None:
        judge.refuse((), "must have spec or specs")
    single = judge.mapping(("spec",), raw.get("spec"), required="spec" in raw)
    many = judge.items(("specs",), raw.get("specs"), required="specs" in raw)
    rules: list[tuple[yaml.Path, Any]] = [(("spec",), single)] if single else []
    rules += [(("specs", index), rule) for index, rule in enumerate(many)]
    for path, item in rules:
        rule = judge.mapping(path, item, required=True)
        if "nodeSelector" in rule:
            judge.refuse((*path, "nodeSelector"), "is of the whole cluster's policies; here are pods of one namespace")
        judge.known(path, {name: None for name in rule if name != "nodeSelector"}, _CILIUM)
        if rule and not isinstance(rule.get("endpointSelector"), dict):
            message = "must be a label selector; {} selects all pods of the namespace"
            judge.refuse((*path, "endpointSelector"), message)
        for part in ("ingress", "ingressDeny", "egress", "egressDeny"):
            _rules(judge, (*path, part), rule.get(part))
        for at in _secrets(rule, path):
            judge.refuse(at, "has the proxy read a Secret: a profile names none", code="plain-secret")


def _rules(judge: Judge, path: yaml.Path, raw: Any) -> None:
    rules = judge.items(path, raw)
    if len(rules) > MAX_RULES:
        judge.refuse(path, f"holds {len(rules)} rules; at most {MAX_RULES} are accepted")
    for index, rule in enumerate(rules[:MAX_RULES]):
        judge.mapping((*path, index), rule)


def _secrets(raw: Any, path: yaml.Path) -> Iterator[yaml.Path]:
    """Yield where a rule names a Secret: certificates of TLS that it ends, values of headers."""
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            if key == "secret":
                yield (*path, key)
            else:
                yield from _secrets(value, (*path, key))
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _secrets(value, (*path, index))
