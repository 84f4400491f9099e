"""Rights read from a chart: what Kubernetes lets be granted, nothing twice, and never what opens everything."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from clusters.kube.discovery import Resource, ServedApis
from components.access import rights
from components.helm.rendering import Manifest
from contract import names

RBAC = "rbac.authorization.k8s.io/v1"
SERVED = ServedApis(
    "v1.35.4",
    {
        ("v1", "Namespace"): Resource("v1", "Namespace", "namespaces", False),
        ("apps/v1", "Deployment"): Resource("apps/v1", "Deployment", "deployments", True),
        (RBAC, "ClusterRole"): Resource(RBAC, "ClusterRole", "clusterroles", False),
        (RBAC, "Role"): Resource(RBAC, "Role", "roles", True),
        (RBAC, "RoleBinding"): Resource(RBAC, "RoleBinding", "rolebindings", True),
        (RBAC, "ClusterRoleBinding"): Resource(RBAC, "ClusterRoleBinding", "clusterrolebindings", False),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): Resource(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False
        ),
    },
)


def manifest(kind: str, api_version: str = RBAC, name: str = "chart", **more: Any) -> Manifest:
    return Manifest({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more})


def role(*rules: dict[str, Any], kind: str = "ClusterRole") -> Manifest:
    return manifest(kind, rules=list(rules))


def rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def needed(*manifests: Manifest) -> rights.Rights:
    return rights.needed("tiny", manifests, "tiny-system", SERVED)


def test_what_the_manifest_grants_to_all_components_is_not_asked_for_again():
    needed_rights = needed(manifest("Deployment", "apps/v1"), role(rule("", "configmaps", "get", "list")))
    assert needed_rights.objects() == []
    assert "setpoint-components.yaml" in needed_rights.text()


def test_what_the_charts_roles_grant_is_granted_where_the_chart_grants_it():
    everywhere, there = rule("example.org", "things", "*"), rule("", "pods/log", "get")
    needed_rights = needed(role(everywhere), role(there, kind="Role"))
    assert needed_rights.cluster == (everywhere,)
    assert needed_rights.namespaced == {"tiny-system": (there,)}
    made = [(raw["kind"], raw["metadata"].get("namespace")) for raw in yaml.safe_load_all(needed_rights.text())]
    assert made == [
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "tiny-system"),
        ("RoleBinding", "tiny-system"),
    ]
    assert "kubectl create namespace tiny-system" in needed_rights.text(), "kubectl would not apply a Role before it"
    subjects = {subject["name"] for raw in needed_rights.objects() if "subjects" in raw for subject in raw["subjects"]}
    assert subjects == {names.HELM_SERVICE_ACCOUNT, names.CONTROLLER_SERVICE_ACCOUNT}


def test_a_namespace_that_the_chart_brings_is_made_with_the_marks_that_helm_asks_for():
    """Made bare, helm would refuse to take it over: "cannot be imported into the current release"."""
    there = manifest("Role", rules=[rule("", "pods/log", "get")])
    there.raw["metadata"]["namespace"] = "tiny-secrets"
    text = needed(manifest("Namespace", "v1", "tiny-secrets"), there).text()
    assert "kubectl label namespace tiny-secrets app.kubernetes.io/managed-by=Helm" in text
    assert "meta.helm.sh/release-name=tiny meta.helm.sh/release-namespace=tiny-system" in text


def test_objects_of_a_definition_that_comes_along_are_known_by_it():
    spec = {"group": "example.org", "names": {"kind": "Thing", "plural": "thingies"}}
    definition = manifest("CustomResourceDefinition", "apiextensions.k8s.io/v1", spec=spec)
    needed_rights = needed(definition, manifest("Thing", "example.org/v1"))
    assert [rule["resources"] for rule in needed_rights.cluster] == [["thingies"]]
    assert needed_rights.withheld == ()


def test_a_kind_that_nobody_knows_is_said_and_not_guessed():
    needed_rights = needed(manifest("Thing", "example.org/v1"))
    assert needed_rights.cluster == ()
    assert "Thing" in needed_rights.withheld[0]


def test_a_role_that_the_chart_does_not_bring_may_be_bound_and_no_other():
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"}
    needed_rights = needed(manifest("ClusterRoleBinding", roleRef=reference))
    assert [(rule["resourceNames"], rule["verbs"]) for rule in needed_rights.cluster] == [
        (["system:auth-delegator"], ["bind"])
    ]


@pytest.mark.parametrize(
    "grant",
    [
        rule("*", "*", "*"),
        rule("*", "deployments", "update"),
        rule("admissionregistration.k8s.io", "*", "create"),
        rule("admissionregistration.k8s.io", "validatingadmissionpolicies", "delete"),
        rule("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "patch"),
        rule("rbac.authorization.k8s.io", "clusterroles", "escalate"),
        rule("rbac.authorization.k8s.io", "clusterrolebindings", "*"),
        rule("", "*", "*"),
        rule("", "users", "impersonate"),
        rule("", "serviceaccounts/token", "create"),
        rule("setpoint.dev", "nodetunings", "patch"),
    ],
    ids=str,
)
def test_what_would_open_everything_is_withheld_and_named(grant):
    needed_rights = needed(role(grant))
    assert needed_rights.objects() == []
    assert "chart" in needed_rights.withheld[0]
    assert "WITHHELD" in needed_rights.text()


def test_to_be_a_cluster_administrator_is_withheld():
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    needed_rights = needed(manifest("ClusterRoleBinding", roleRef=reference))
    assert needed_rights.cluster == ()
    assert "administrators" in needed_rights.withheld[0]


def test_reading_everything_is_not_withheld():
    grant = rule("*", "*", "get", "list", "watch")
    assert needed(role(grant)).cluster == (grant,)


def test_the_manifest_for_components_itself_has_nothing_that_is_withheld():
    """An account could otherwise remove the fence that holds it (Kubernetes guards no policy by a policy)."""
    for base in rights.base_rules():
        assert not rights._objection(base), base
        assert "*" not in {*base["apiGroups"], *base["resources"], *base["verbs"]}
