"""The rights that a component needs beyond deploy/setpoint-components.yaml, read from its rendered chart.

In Kubernetes a right can be granted only by an identity that holds it, so the identity that installs a chart holds what
the chart's roles grant. The cluster's administrator reads them here, as a role of their own for each component, and
applies it; Setpoint cannot.
What would open everything is withheld: it is listed, and left out of the role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from clusters.discovery import Served
from components.rendering import Manifest
from contract import names

RBAC = "rbac.authorization.k8s.io"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
READS = frozenset({"get", "list", "watch"})
_ESCALATING = frozenset({"escalate", "bind", "impersonate"})
_PART = {"app.kubernetes.io/part-of": "setpoint"}
_ACCOUNTS = (names.HELM_SERVICE_ACCOUNT, names.CONTROLLER_SERVICE_ACCOUNT)
Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rights:
    component: str
    cluster: tuple[Rule, ...]
    namespaced: Mapping[str, tuple[Rule, ...]]
    """By namespace: what the chart grants there and nowhere else."""
    withheld: tuple[str, ...] = ()
    """Why the chart cannot be installed with these alone, one sentence each."""
    labels: Mapping[str, str] = field(default_factory=lambda: dict(_PART))

    def objects(self) -> list[dict[str, Any]]:
        """Roles and bindings to apply."""
        name = f"setpoint-component-{self.component}"
        made = self._pair("", name, self.cluster) if self.cluster else []
        for namespace, rules in sorted(self.namespaced.items()):
            made += self._pair(namespace, name, rules)
        return made

    def text(self) -> str:
        """As YAML, with what is withheld in front."""
        lines = [f"# Rights of Setpoint for {self.component}, from its rendered chart. Read them, then kubectl apply."]
        lines += [f"# WITHHELD: {why}" for why in self.withheld]
        if not self.objects():
            return "\n".join([*lines, "# deploy/setpoint-components.yaml has all that it needs.", ""])
        return "\n".join([*lines, yaml.safe_dump_all(self.objects(), sort_keys=False)])

    def _pair(self, namespace: str, name: str, rules: Sequence[Rule]) -> list[dict[str, Any]]:
        kind = "Role" if namespace else "ClusterRole"
        meta = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(self.labels)}
        subjects = [{"kind": "ServiceAccount", "name": one, "namespace": names.NAMESPACE} for one in _ACCOUNTS]
        return [
            {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, "rules": [dict(rule) for rule in rules]},
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": meta,
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
                "subjects": subjects,
            },
        ]


def needed(component: str, manifests: Iterable[Manifest], namespace: str, served: Served) -> Rights:
    """`manifests`: all of the chart, hooks and definitions with it, and what an older revision left there."""
    found = list(manifests)
    withheld: list[str] = []
    everywhere = [*_kinds(found, served, withheld), *_binds(found, withheld)]
    within: dict[str, list[Rule]] = {}
    for one in found:
        if one.kind not in ("Role", "ClusterRole") or not one.api_version.startswith(f"{RBAC}/"):
            continue
        place = everywhere if one.kind == "ClusterRole" else within.setdefault(one.namespace or namespace, [])
        for rule in one.raw.get("rules") or ():
            if opens := _objection(rule):
                withheld.append(f"{one.kind} {one.name} grants {opens}")
            elif not _is_base(rule):
                place.append(rule)
    return Rights(
        component,
        tuple(_distinct(everywhere)),
        {space: tuple(_distinct(rules)) for space, rules in within.items() if rules},
        tuple(dict.fromkeys(withheld)),
    )


def _kinds(found: Sequence[Manifest], served: Served, withheld: list[str]) -> Iterator[Rule]:
    """Of its own objects: kinds that Kubernetes does not bring, and those of the definitions that come with them."""
    defined = {
        ((spec := one.raw.get("spec") or {}).get("group"), (spec.get("names") or {}).get("kind")): str(
            (spec.get("names") or {}).get("plural")
        )
        for one in found
        if one.kind == "CustomResourceDefinition"
    }
    for one in found:
        group = one.api_version.rpartition("/")[0]
        known = served.find(one.api_version, one.kind)
        plural = defined.get((group, one.kind)) or (known.plural if known else "")
        if not plural:
            withheld.append(f"it is unknown yet what {one.kind} of {one.api_version} is called in rules")
            continue
        rule = {"apiGroups": [group], "resources": [plural], "verbs": VERBS}
        if why := _objection(rule):
            withheld.append(f"it brings {one.kind} {one.name}: {why}")
        elif not _is_base(rule):
            yield rule


def _binds(found: Sequence[Manifest], withheld: list[str]) -> Iterator[Rule]:
    """To roles that the chart does not bring: the right to bind exactly these."""
    own = {(one.kind, one.name) for one in found}
    for one in found:
        if one.kind not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        reference = one.raw.get("roleRef") or {}
        kind, name = str(reference.get("kind")), str(reference.get("name"))
        if (kind, name) in own:
            continue
        if name == "cluster-admin":
            withheld.append(f"{one.kind} {one.name} makes its subjects cluster administrators")
            continue
        plural = "clusterroles" if kind == "ClusterRole" else "roles"
        yield {"apiGroups": [RBAC], "resources": [plural], "resourceNames": [name], "verbs": ["bind"]}


def _objection(rule: Rule) -> str:
    """Why a rule is never Setpoint's; empty: it may be."""
    groups, resources, verbs = (set(rule.get(part) or ()) for part in ("apiGroups", "resources", "verbs"))
    if not verbs - READS:
        return ""
    if "*" in groups and groups:
        return "writes in every API group, admission policies with them"
    if "admissionregistration.k8s.io" in groups and any(
        one == "*" or one.startswith(("validatingadmissionpolic", "mutatingadmissionpolic")) for one in resources
    ):
        return "writes of admission policies"
    if names.GROUP in groups:
        return f"writes of {names.GROUP}"
    if RBAC in groups and (verbs & _ESCALATING or "*" in verbs) and not rule.get("resourceNames"):
        return "the right to give any right (escalate, bind)"
    if "" in groups and "*" in resources:
        return "writes of every core kind, impersonation and tokens of other accounts with them"
    if "" in groups and "serviceaccounts/token" in resources:
        return "tokens of other accounts"
    if "" in groups and resources & {"users", "groups", "serviceaccounts"} and verbs & {"impersonate", "*"}:
        return "impersonation"
    return ""


def _is_base(rule: Rule) -> bool:
    """Whether deploy/setpoint-components.yaml grants it already."""
    if rule.get("nonResourceURLs"):
        return False
    return all(
        any(
            group in base["apiGroups"] and resource in base["resources"] and set(rule["verbs"]) <= set(base["verbs"])
            for base in base_rules()
        )
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    )


@cache
def base_rules() -> tuple[Rule, ...]:
    path = Path(settings.BASE_DIR) / "deploy" / "setpoint-components.yaml"
    for raw in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        if raw["kind"] == "ClusterRole":
            return tuple(raw["rules"])
    raise AssertionError(f"{path} has no ClusterRole")


def _distinct(rules: Iterable[Rule]) -> Iterator[Rule]:
    seen: list[Rule] = []
    for rule in rules:
        if rule not in seen:
            seen.append(rule)
            yield rule
