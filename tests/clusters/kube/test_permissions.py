"""Permissions that Setpoint asks for when a cluster is connected are those deploy/ grants: neither more nor less."""

from __future__ import annotations

from pathlib import Path

import yaml

from clusters.kube.permissions import CHECK_PERMISSIONS, REQUIRED_PERMISSIONS
from contract import names

MANIFESTS = Path(__file__).resolve().parents[3] / "deploy" / "setpoint.yaml"


def granted() -> set[tuple[str, str, str, str, str]]:
    """Verb, group, resource, namespace and name of each right of the controller's account."""
    grants = set()
    for raw in yaml.safe_load_all(MANIFESTS.read_text()):
        if raw["kind"] not in ("Role", "ClusterRole") or raw["metadata"]["name"] != names.CONTROLLER_SERVICE_ACCOUNT:
            continue
        for rule in raw["rules"]:
            if rule["resources"] == ["serviceaccounts/token"]:
                assert rule["resourceNames"] == [names.CONTROLLER_SERVICE_ACCOUNT], "its own token and no other's"
            grants |= {
                (verb, group, resource, raw["metadata"].get("namespace", ""), name)
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for name in rule.get("resourceNames", [""])
            }
    return grants


def test_what_is_asked_for_is_what_the_manifests_grant():
    required = {(p.verb, p.group, p.resource, p.namespace, p.name) for p in REQUIRED_PERMISSIONS}
    assert granted() == required
    assert len(required) == len(REQUIRED_PERMISSIONS)


def test_nothing_that_is_asked_for_makes_or_deletes_nodes_or_deletes_pods():
    for permission in REQUIRED_PERMISSIONS:
        if permission.resource in ("nodes", "pods"):
            assert permission.verb in ("get", "list", "watch", "patch")
        assert "*" not in (permission.verb, permission.group, permission.resource)


def test_what_checks_need_is_what_their_own_manifest_grants():
    manifest = MANIFESTS.with_name("setpoint-checks.yaml")
    (role,) = (raw for raw in yaml.safe_load_all(manifest.read_text()) if raw["kind"] == "Role")
    granted = {(verb, rule["resources"][0]) for rule in role["rules"] for verb in rule["verbs"]}
    assert granted == {(p.verb, p.resource) for p in CHECK_PERMISSIONS}
    assert {p.namespace for p in CHECK_PERMISSIONS} == {role["metadata"]["namespace"]} == {names.CHECKS_NAMESPACE}
