"""Checks of Roles and RoleBindings: a profile gives no right by which its holder comes to more rights than it says.

Sources: kubernetes.io (rbac, rbac-good-practices: which rights are ways to others), the verbs of Kubernetes' API.
Besides, Kubernetes lets Setpoint grant no more than Setpoint holds: it has neither `escalate` nor `bind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from contract import names
from profiles.policies.kubernetes import Judge

RBAC = "rbac.authorization.k8s.io"
READS = ("get", "list", "watch")
VERBS = (*READS, "create", "update", "patch", "delete", "deletecollection")
"""No others: escalate, bind, impersonate, approve, sign and attest give rights of others, use and proxy reach them."""
NEVER: Mapping[str, str] = {
    "secrets": "holds credentials, and one of the type service-account-token becomes a token of any account",
    "serviceaccounts/token": "makes tokens of other accounts",
    "pods/exec": "is a shell in every pod, with its account and its mounts",
    "pods/attach": "is a shell in every pod, with its account and its mounts",
    "pods/ephemeralcontainers": "runs anything in every pod",
    "pods/portforward": "reaches every port of every pod",
    "pods/proxy": "reaches every port of every pod",
    "services/proxy": "reaches every service as the API server",
    "nodes": "belongs to the whole cluster",
    "nodes/proxy": "is the kubelet's own interface, with a shell in every pod of the node",
    "pods/eviction": "ends running pods, which only a plan does",
    "users": "is for impersonation",
    "groups": "is for impersonation",
}
"""With any verb, and why."""
READ_ONLY: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "pods", "podtemplates", "replicationcontrollers", "daemonsets", "deployments", "replicasets",
            "statefulsets", "jobs", "cronjobs",
        ),
        "starts pods, which may mount every Secret of the namespace and run as each of its accounts",
    ),
    "serviceaccounts": "makes accounts that others' bindings may name",
}  # fmt: skip
GROUPS: Mapping[str, str] = {
    RBAC: "gives rights",
    "setpoint.dev": "is Setpoint's own",
    "authentication.k8s.io": "makes and judges tokens",
    "authorization.k8s.io": "asks for others' rights",
    "certificates.k8s.io": "signs certificates",
    "admissionregistration.k8s.io": "holds the policies that hold Setpoint",
    "apiregistration.k8s.io": "replaces parts of the API",
    "apiextensions.k8s.io": "replaces kinds of the cluster",
}
"""Of which nothing is granted."""
OWN = "setpoint-"
"""Names that begin with it are Setpoint's own roles and bindings."""
VIEW = "view"
"""The one role of Kubernetes that may be bound: it reads, and no Secret."""


def role(judge: Judge, raw: Mapping[str, Any]) -> None:
    _own_name(judge, raw)
    for index, item in enumerate(judge.items(("rules",), raw.get("rules"), required=True)):
        path: yaml.Path = ("rules", index)
        rule = judge.mapping(path, item, required=True)
        judge.known(path, rule, ("apiGroups", "resources", "resourceNames", "verbs"))
        verbs = _texts(judge, (*path, "verbs"), rule.get("verbs"))
        for number, verb in enumerate(verbs):
            judge.one_of((*path, "verbs", number), verb, VERBS)
        for number, group in enumerate(_texts(judge, (*path, "apiGroups"), rule.get("apiGroups"))):
            if "*" in group:
                judge.refuse((*path, "apiGroups", number), "names no group: write each one", code="wildcard")
            elif group in GROUPS:
                judge.refuse((*path, "apiGroups", number), f"{group} {GROUPS[group]}", code="escalation")
        writes = any(verb not in READS for verb in verbs)
        for number, resource in enumerate(_texts(judge, (*path, "resources"), rule.get("resources"))):
            if reason := _bad_resource(resource, writes=writes):
                judge.refuse((*path, "resources", number), reason, code="escalation")
        if rule.get("resourceNames") is not None:
            _texts(judge, (*path, "resourceNames"), rule["resourceNames"])


def _bad_resource(resource: str, *, writes: bool) -> str:
    plain = resource.lower()
    if "*" in plain:
        return "names no resource: write each one"
    if plain in NEVER or plain.startswith("nodes/"):
        return f"{resource} {NEVER.get(plain, NEVER['nodes'])}: a profile does not grant it"
    whole = plain.partition("/")[0]
    if writes and whole in READ_ONLY:
        return f"to write {resource} {READ_ONLY[whole]}: grant {', '.join(READS)} only"
    return ""


def role_binding(judge: Judge, raw: Mapping[str, Any]) -> None:
    _own_name(judge, raw)
    reference = judge.mapping(("roleRef",), raw.get("roleRef"), required=True)
    judge.known(("roleRef",), reference, ("apiGroup", "kind", "name"))
    if reference and reference.get("apiGroup") != RBAC:
        judge.refuse(("roleRef", "apiGroup"), f"must be {RBAC}")
    kind, name = reference.get("kind"), reference.get("name")
    if reference and (not isinstance(name, str) or not name):
        judge.refuse(("roleRef", "name"), "must be the name of a Role of the same namespace")
    elif kind == "ClusterRole" and name != VIEW:
        message = f"binds rules that no approver of this profile reads: want a Role, or the ClusterRole {VIEW}"
        judge.refuse(("roleRef",), message, code="escalation")
    elif reference and kind not in ("Role", "ClusterRole"):
        judge.refuse(("roleRef", "kind"), "must be Role")
    for index, item in enumerate(judge.items(("subjects",), raw.get("subjects"), required=True)):
        subject = judge.mapping(("subjects", index), item, required=True)
        judge.known(("subjects", index), subject, ("apiGroup", "kind", "name", "namespace"))
        if reason := _bad_subject(subject):
            judge.refuse(("subjects", index), reason, code="escalation")


def _bad_subject(subject: Mapping[str, Any]) -> str:
    kind, name, space = subject.get("kind"), subject.get("name"), subject.get("namespace")
    if kind not in ("User", "Group", "ServiceAccount"):
        return "must be a User, a Group or a ServiceAccount"
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 253:
        return "must have a name"
    if kind != "ServiceAccount":
        return "names with system: belong to Kubernetes; name a ServiceAccount as such" if _is_system(name) else ""
    if not isinstance(space, str) or not space:
        return "must have the account's namespace"
    if space.startswith("kube-") or space == names.NAMESPACE:
        return f"{space} belongs to {'Setpoint' if space == names.NAMESPACE else 'Kubernetes'}: it gets no rights here"
    return ""


def _is_system(name: str) -> bool:
    return name.lower().startswith("system:")


def _own_name(judge: Judge, raw: Mapping[str, Any]) -> None:
    if str(raw["metadata"].get("name")).startswith(OWN):
        judge.refuse(("metadata", "name"), f"names with {OWN} are Setpoint's own", code="reserved")


def _texts(judge: Judge, path: yaml.Path, raw: Any) -> list[str]:
    out = []
    for index, item in enumerate(judge.items(path, raw, required=True)):
        if isinstance(item, str):
            out.append(item)
        else:
            judge.refuse((*path, index), "must be text")
    return out
