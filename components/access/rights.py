"""The rights that a component needs beyond deploy/setpoint-components.yaml, read from its rendered chart.

In Kubernetes a right can be granted only by an identity that holds it, so the identity that installs a chart holds what
the chart's roles grant. The cluster's administrator reads them here, as a role of their own for each component, and
applies it; Setpoint cannot.
What would open everything is dangerous: it is named, and left out of the role unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from clusters.kube.discovery import ServedApis
from components.helm.patches import MANAGED_BY, RELEASE_NAME, RELEASE_NAMESPACE
from components.helm.rendering import Manifest
from components.plans.authority import Right
from contract import names

RBAC = "rbac.authorization.k8s.io"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
_SPACES = ["get", "list", "watch", "create", "patch"]
READS = frozenset({"get", "list", "watch"})
_ESCALATING = frozenset({"escalate", "bind", "impersonate"})
_PART = {"app.kubernetes.io/part-of": "setpoint"}
_ACCOUNTS = (names.HELM_SERVICE_ACCOUNT, names.CONTROLLER_SERVICE_ACCOUNT)
Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rights:
    component: str
    needs: tuple[Right, ...]
    """All of them, those that deploy/setpoint-components.yaml grants already among them."""
    unknown: tuple[str, ...] = ()
    """Kinds whose rights are not known yet, one sentence each."""
    release: str = ""
    """helm's name of it; empty: the component's."""

    @property
    def cluster(self) -> tuple[Rule, ...]:
        """Rules of the component's own ClusterRole: nothing dangerous, and nothing that is granted already."""
        return self._rules("")

    @property
    def namespaced(self) -> Mapping[str, tuple[Rule, ...]]:
        """Rules by namespace: those that the chart grants there and nowhere else."""
        spaces = {right.namespace for right in self.needs if right.use == "grant"} - {""}
        return {space: rules for space in sorted(spaces) if (rules := self._rules(space))}

    @property
    def dangerous(self) -> tuple[Right, ...]:
        return tuple(right for right in self.needs if right.danger)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Reasons why the chart cannot be installed with its role alone, one sentence each."""
        return tuple(dict.fromkeys([*(f"{right.why}: {right.danger}" for right in self.dangerous), *self.unknown]))

    def objects(self, *, is_whole: bool = False) -> list[dict[str, Any]]:
        """Roles and bindings to apply; `is_whole`: with what is dangerous."""
        name = f"setpoint-component-{self.component}"
        rules = self._rules("", is_whole=is_whole)
        made = self._pair("", name, rules) if rules else []
        for namespace in sorted({right.namespace for right in self.needs if right.use == "grant"} - {""}):
            if rules := self._rules(namespace, is_whole=is_whole):
                made += self._pair(namespace, name, rules)
        return made

    def text(self, *, is_whole: bool = False) -> str:
        """Return the YAML, with the dangerous rights in front: left out, or named."""
        lines = [f"# Rights of Setpoint for {self.component}, from its rendered chart. Read them, then kubectl apply."]
        lines += [f"# {'DANGEROUS' if is_whole else 'WITHHELD'}: {why}" for why in self.withheld]
        if not (roles := self.objects(is_whole=is_whole)):
            return "\n".join([*lines, "# deploy/setpoint-components.yaml has all else that it needs.", ""])
        spaces = sorted({role["metadata"]["namespace"] for role in roles if "namespace" in role["metadata"]})
        lines += [f"# Before it, where it is not there yet: {self._making(space)}" for space in spaces]
        return "\n".join([*lines, yaml.safe_dump_all(roles, sort_keys=False)])

    def _making(self, space: str) -> str:
        """Return the commands that make a namespace before its roles.

        helm takes over a namespace that its chart brings only with helm's own marks.
        """
        made = f"kubectl create namespace {space}"
        if space not in self._brought:
            return made
        where = next(right.namespace for right in self.needs if right.use == "records" and right.namespace)
        return (
            f"{made} && kubectl label namespace {space} {MANAGED_BY}=Helm && kubectl annotate namespace {space} "
            f"{RELEASE_NAME}={self.release or self.component} {RELEASE_NAMESPACE}={where}"
        )

    @property
    def _brought(self) -> set[str]:
        """Namespaces among the chart's own objects: those that a removal deletes."""
        rules = [right.rule for right in self.needs if right.use == "own"]
        return {
            name
            for rule in rules
            if rule["resources"] == ["namespaces"] and "delete" in rule["verbs"]
            for name in rule.get("resourceNames", ())
        }

    def _rules(self, namespace: str, *, is_whole: bool = False) -> tuple[Rule, ...]:
        rules = [
            right.rule
            for right in self.needs
            if (right.namespace if right.use == "grant" else "") == namespace
            and (is_whole or not right.danger)
            and not _is_base(right.rule)
        ]
        return tuple(_distinct(rules))

    def _pair(self, namespace: str, name: str, rules: Sequence[Rule]) -> list[dict[str, Any]]:
        kind = "Role" if namespace else "ClusterRole"
        meta = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(_PART)}
        subjects = [{"kind": "ServiceAccount", "name": account, "namespace": names.NAMESPACE} for account in _ACCOUNTS]
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


def needed(
    component: str, manifests: Iterable[Manifest], namespace: str, served: ServedApis, release: str = ""
) -> Rights:
    """`manifests`: all of the chart, hooks and definitions with it, and what an older revision left there."""
    rendered = list(manifests)
    unknown: list[str] = []
    needs = [*_records(namespace), *_kinds(rendered, namespace, served, unknown), *_binds(rendered, namespace)]
    for manifest in rendered:
        if manifest.kind in ("Role", "ClusterRole") and manifest.api_version.startswith(f"{RBAC}/"):
            needs += _grants(manifest, namespace)
    return Rights(component, _joined(needs), tuple(dict.fromkeys(unknown)), release)


def _records(namespace: str) -> Iterator[Right]:
    """helm keeps a Secret for each revision; the namespace is made where there is none."""
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": VERBS}
    yield Right.of(secrets, namespace, why="helm's records of its revisions", use="records")
    spaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create"]}
    yield Right.of(spaces, why="the release's namespace", use="records")


def _kinds(manifests: Sequence[Manifest], namespace: str, served: ServedApis, unknown: list[str]) -> Iterator[Right]:
    """Yield the rights on the chart's own objects of kinds that Kubernetes does not bring.

    Those of the definitions that come with them included.
    """
    defined = {
        ((spec := manifest.raw.get("spec") or {}).get("group"), (spec.get("names") or {}).get("kind")): (
            str((spec.get("names") or {}).get("plural")),
            spec.get("scope") != "Cluster",
        )
        for manifest in manifests
        if manifest.kind == "CustomResourceDefinition"
    }
    for manifest in manifests:
        group = manifest.api_version.rpartition("/")[0]
        known = served.find(manifest.api_version, manifest.kind)
        plural, is_namespaced = (
            (known.plural, known.is_namespaced) if known else defined.get((group, manifest.kind), ("", 0))
        )
        if not plural:
            unknown.append(f"it is unknown yet what {manifest.kind} of {manifest.api_version} is called in rules")
            continue
        is_space = (group, plural) == ("", "namespaces")
        rule = {"apiGroups": [group], "resources": [plural], "verbs": _SPACES if is_space else VERBS}
        if is_space and not manifest.is_kept:  # to take away those that it brings, and no others
            taken = {"apiGroups": [""], "resources": [plural], "resourceNames": [manifest.name], "verbs": ["delete"]}
            yield Right.of(taken, why=f"Namespace {manifest.name}, when it is removed")
        place = (manifest.namespace or namespace) if is_namespaced else ""
        use = "hook" if manifest.is_hook else "own"
        yield Right.of(rule, place, why=f"{manifest.kind} {manifest.name}", use=use, danger=_objection(rule))
        if manifest.is_hook and "helm.sh/hook-output-log-policy" in manifest.annotations:
            logs = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
            yield Right.of(logs, place, why=f"the output of its hook {manifest.name}", use="hook")


def _binds(manifests: Sequence[Manifest], namespace: str) -> Iterator[Right]:
    """Yield the right to bind each role that the chart does not bring, or that aggregates what others grant.

    The right is to bind exactly these roles.
    """
    gathers = {(manifest.kind, manifest.name) for manifest in manifests if manifest.raw.get("aggregationRule")}
    own = {(manifest.kind, manifest.name) for manifest in manifests} - gathers
    for manifest in manifests:
        if manifest.kind not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        reference = manifest.raw.get("roleRef") or {}
        kind, name = str(reference.get("kind")), str(reference.get("name"))
        # Among hooks helm v4 keeps no order of kinds: a binding before its role needs the right to bind it.
        if (kind, name) in own and not manifest.is_hook:
            continue
        plural = "clusterroles" if kind == "ClusterRole" else "roles"
        rule = {"apiGroups": [RBAC], "resources": [plural], "resourceNames": [name], "verbs": ["bind"]}
        danger = "it makes its subjects cluster administrators" if name == "cluster-admin" else ""
        place = (manifest.namespace or namespace) if manifest.kind == "RoleBinding" else ""
        yield Right.of(rule, place, why=f"{manifest.kind} {manifest.name}", use="bind", danger=danger)


def _grants(role: Manifest, namespace: str) -> Iterator[Right]:
    """Kubernetes lets no one grant what they do not hold; and a role made of others may come to grant anything."""
    place = (role.namespace or namespace) if role.kind == "Role" else ""
    why = f"{role.kind} {role.name}"
    if role.raw.get("aggregationRule"):
        rule = {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["escalate"]}
        danger = "it gathers the rules of other roles, and only who may give any right may make such a one"
        yield Right.of(rule, why=why, use="grant", danger=danger)
    for rule in role.raw.get("rules") or ():
        danger = f"it grants {opens}" if (opens := _objection(rule)) else ""
        yield Right.of(rule, place, why=why, use="grant", danger=danger)


def _joined(needs: Iterable[Right]) -> tuple[Right, ...]:
    """Each rule of each place once, with all that it is needed for."""
    out: dict[Any, list[Right]] = {}
    for right in needs:
        key = (right.namespace, right.groups, right.resources, right.names, right.urls, right.verbs, right.use)
        out.setdefault(key, []).append(right)
    return tuple(
        replace(
            same[0], why=_listed([right.why for right in same]), danger=next((o.danger for o in same if o.danger), "")
        )
        for same in out.values()
    )


def _listed(whys: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(whys))
    return ", ".join(distinct[:3]) + (f" and {len(distinct) - 3} more" if len(distinct) > 3 else "")


def _objection(rule: Rule) -> str:
    """Explain why a rule is never granted to Setpoint; empty: it may be granted."""
    groups, resources, verbs = (set(rule.get(part) or ()) for part in ("apiGroups", "resources", "verbs"))
    if not verbs - READS:
        return ""
    if "*" in groups and groups:
        return "writes in every API group, admission policies with them"
    if "admissionregistration.k8s.io" in groups and any(
        resource == "*" or resource.startswith(("validatingadmissionpolic", "mutatingadmissionpolic"))
        for resource in resources
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
    """Return whether deploy/setpoint-components.yaml grants it already."""
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
