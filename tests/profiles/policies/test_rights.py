"""Roles and bindings of a profile: nothing by which their holder comes to more rights than they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.policies import rights
from tests.profiles.policies.wishes import accepted, refused, warnings_of, wish

REPOSITORY = Path(__file__).resolve().parents[3]

RBAC = "rbac.authorization.k8s.io"
TEAM = {"kind": "Group", "apiGroup": RBAC, "name": "team-a"}


def role(*verbs: str, groups: tuple[str, ...] = ("",), resources: tuple[str, ...] = ("configmaps",), **how: Any) -> Any:
    rule = {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs), **how.pop("rule", {})}
    return wish("Role", f"{RBAC}/v1", namespace=how.pop("namespace", "team"), rules=[rule], **how)


def binding(kind: str = "Role", to: str = "a", *, subject: dict[str, Any] = TEAM, **how: Any) -> dict[str, Any]:
    reference = {"apiGroup": RBAC, "kind": kind, "name": to}
    how = {"namespace": "team", "roleRef": reference, "subjects": [subject], **how}
    return wish("RoleBinding", f"{RBAC}/v1", **how)


def account(name: str = "runner", namespace: str = "team") -> dict[str, Any]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


@pytest.mark.parametrize(
    "good",
    [
        role("get", "list", "watch", resources=("pods", "pods/log", "events", "services")),
        role("create", "patch", "delete", resources=("configmaps", "persistentvolumeclaims")),
        role("get", groups=("batch",), resources=("jobs",)),
        role("get", "patch", groups=("kueue.x-k8s.io",), resources=("localqueues",)),
        binding(),
        binding("ClusterRole", "view"),
        binding(subject=account()),
        binding(subject={"kind": "User", "apiGroup": RBAC, "name": "ann@example.org"}),
    ],
)
def test_what_a_team_needs_may_be_granted(good):
    assert accepted(good).policies


@pytest.mark.parametrize("verb", ["*", "escalate", "bind", "impersonate", "approve", "sign", "use", "proxy", "GET", ""])
def test_a_verb_that_opens_more_than_it_says_is_refused(verb):
    assert "must be one of" in refused(role(verb))["rules[0].verbs[0]"]


@pytest.mark.parametrize("verb", ["get", "create", "deletecollection"])
@pytest.mark.parametrize(
    "resource",
    [
        "secrets", "Secrets", "serviceaccounts/token", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy",
        "pods/ephemeralcontainers", "services/proxy", "nodes", "nodes/proxy", "nodes/log", "pods/eviction", "users",
        "groups", "*", "*/scale", "pods/*",
    ],
)  # fmt: skip
def test_a_resource_that_leads_further_is_refused_with_any_verb(resource, verb):
    assert "rules[0].resources[0]" in refused(role(verb, resources=(resource,)))


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
@pytest.mark.parametrize(
    "resource", ["pods", "deployments", "deployments/scale", "jobs", "daemonsets", "serviceaccounts"]
)
def test_what_starts_pods_or_makes_accounts_is_only_read(resource, verb):
    assert "only" in refused(role("get", verb, resources=(resource,)))["rules[0].resources[0]"]
    assert accepted(role("get", "list", "watch", resources=(resource,))).policies


@pytest.mark.parametrize(
    "group", ["*", "*.io", RBAC, "setpoint.dev", "admissionregistration.k8s.io", "authentication.k8s.io",
              "certificates.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authorization.k8s.io"],
)  # fmt: skip
def test_a_group_that_gives_rights_is_refused_even_to_read(group):
    assert "rules[0].apiGroups[0]" in refused(role("get", groups=(group,), resources=("roles",)))


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "setpoint-system"])
def test_no_right_is_given_in_the_namespaces_of_kubernetes_and_setpoint(namespace):
    for wanted in (role("get", namespace=namespace), binding(namespace=namespace)):
        assert "belongs to" in refused(wanted)["metadata.namespace"]


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (role("get", name="setpoint-helm"), "metadata.name"),
        (binding(name="setpoint-helm"), "metadata.name"),
        (role("get", rule={"nonResourceURLs": ["/metrics"]}), "rules[0].nonResourceURLs"),
        (role(), "rules[0].verbs"),
        (role("get", resources=()), "rules[0].resources"),
        (wish("Role", f"{RBAC}/v1", namespace="team", rules=[]), "rules"),
        (wish("Role", f"{RBAC}/v1", namespace="team", rules=[], aggregationRule={}), "aggregationRule"),
        (binding("ClusterRole", "cluster-admin"), "roleRef"),
        (binding("ClusterRole", "admin"), "roleRef"),
        (binding("ClusterRole", "edit"), "roleRef"),
        (binding("ClusterRole", "system:node"), "roleRef"),
        (binding("Pod", "a"), "roleRef.kind"),
        (binding(roleRef={"apiGroup": "", "kind": "Role", "name": "a"}), "roleRef.apiGroup"),
        (binding(subjects=[]), "subjects"),
        (binding(subject={"kind": "Group", "name": "system:masters"}), "subjects[0]"),
        (binding(subject={"kind": "Group", "name": "system:authenticated"}), "subjects[0]"),
        (binding(subject={"kind": "Group", "name": "System:masters"}), "subjects[0]"),
        (binding(subject={"kind": "User", "name": "system:anonymous"}), "subjects[0]"),
        (binding(subject={"kind": "User", "name": "system:serviceaccount:setpoint-system:setpoint-controller"}),
         "subjects[0]"),
        (binding(subject=account("default", "kube-system")), "subjects[0]"),
        (binding(subject=account("setpoint-controller", "setpoint-system")), "subjects[0]"),
        (binding(subject={"kind": "ServiceAccount", "name": "a"}), "subjects[0]"),
        (binding(subject={"kind": "Robot", "name": "a"}), "subjects[0]"),
    ],
)  # fmt: skip
def test_what_gives_rights_of_others_is_refused_with_its_place(wanted, where):
    assert where in refused(wanted)


@pytest.mark.parametrize("kind", ["ClusterRole", "ClusterRoleBinding", "Secret", "ServiceAccount", "Pod", "DaemonSet"])
def test_these_kinds_are_never_wanted(kind):
    assert "cannot be wanted here" in refused(wish(kind, "v1"))["kind"]


def test_a_binding_says_when_its_role_is_not_here():
    assert "Role team/a is not in this profile" in warnings_of(binding())["not-here"]
    assert "not-here" not in warnings_of(binding(), role("get"))


def test_the_admission_policy_refuses_the_same_as_the_parser():
    documents = yaml.safe_load_all((REPOSITORY / "deploy" / "setpoint-policies.yaml").read_text(encoding="utf-8"))
    [fence] = [document for document in documents if document["kind"] == "ValidatingAdmissionPolicy"]
    lists = {
        variable["name"]: yaml.safe_load(variable["expression"])
        for variable in fence["spec"]["variables"]
        if variable["expression"].startswith("[")
    }

    assert set(lists["never"]) == set(rights.NEVER)
    assert set(lists["readOnly"]) == set(rights.READ_ONLY)
    assert set(lists["groups"]) == set(rights.GROUPS)
    [of_roles] = [
        validation["expression"]
        for validation in fence["spec"]["validations"]
        if "variables.never" in validation["expression"]
    ]
    assert all(f"'{verb}'" in of_roles for verb in rights.VERBS)
