"""Helm's rights for a component are asked beforehand, by name; an administrator runs only where a plan names it."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from clusters.connection import encryption, helm_credentials
from clusters.fleet import FleetRefused, Forbidden
from clusters.models import AdministratorCredential, HelmCredential
from common.clock import now
from components.access import administrator, asking, permitting
from components.access.rights import Rights
from components.plans.authority import Authority, Right, undoing
from components.plans.prepared import Prepared
from contract import names
from tests.clusters.factories import ClusterFactory
from tests.components.access.test_rights import manifest, needed, role, rule
from tests.components.kube import Kube

SELF = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OTHER = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
pytestmark = pytest.mark.django_db


class Judge(Kube):
    """Answers reviews by a table of (verb, resource); None for the resource: each of them."""

    def __init__(self, *allowed: tuple[str, str], everything: bool = False, refuses: bool = False) -> None:
        super().__init__()
        for kind in ("SelfSubjectAccessReview", "SubjectAccessReview"):
            path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"

            def answer(how: dict[str, Any], kind: str = kind) -> tuple[int, Any]:
                if refuses and kind == "SubjectAccessReview":
                    return 403, {"kind": "Status", "message": 'User "x" cannot create resource', "code": 403}
                attributes = how["body"]["spec"].get("resourceAttributes") or {}
                is_all = attributes.get("resource") == "*"
                right = (attributes.get("verb", ""), attributes.get("resource", ""))
                return 201, {"kind": kind, "status": {"allowed": everything if is_all else right in allowed}}

            self.say("POST", path, answer, 201)


def right(*verbs: str, resource: str = "things", **more: Any) -> Right:
    return Right.of({"apiGroups": ["example.org"], "resources": [resource], "verbs": list(verbs)}, **more)


def stored(cluster: Any, model: type, **more: Any) -> None:
    sealed = encryption.seal(cluster.pk, model.FIELD, "{}", ring=encryption.HELM)
    model.objects.create(cluster=cluster, sealed=sealed.data, key=sealed.key, **more)


# ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_lacks_is_named_verb_by_verb():
    kube = Judge(("get", "things"))
    [verdict] = asking.check_rights(kube, [right("get", "create")])
    assert verdict.lacks == ("create things.example.org",)
    assert {request["path"] for request in kube.asked} == {SELF}


def test_about_another_account_it_is_asked_as_the_cluster_knows_it():
    kube = Judge()
    asking.check_rights(kube, [right("get")], account="setpoint-helm")
    assert {request["path"] for request in kube.asked} == {OTHER}
    spec = kube.asked[-1]["body"]["spec"]
    assert spec["user"] == names.HELM_USERNAME
    assert f"system:serviceaccounts:{names.NAMESPACE}" in spec["groups"]


def test_each_name_subresource_and_url_is_a_question_of_its_own():
    kube = Judge()
    named = Right.of({"apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["a", "b"], "verbs": ["get"]}, "x")
    url = Right.of({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})
    first, second = asking.check_rights(kube, [named, url])
    assert first.lacks == ("get pods/log a", "get pods/log b")
    assert second.lacks == ("get /metrics",)
    specs = [request["body"]["spec"].get("resourceAttributes") or {} for request in kube.asked]
    assert {(spec.get("name"), spec.get("subresource"), spec.get("namespace")) for spec in specs} >= {
        ("a", "log", "x"),
        ("b", "log", "x"),
    }


def test_who_may_do_everything_is_asked_once_and_lacks_nothing():
    kube = Judge(everything=True)
    assert asking.check_rights(kube, [right("get"), right("escalate")])[1].lacks == ()
    assert len(kube.asked) == 1


# ── What a chart needs ────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_dangerous_right_is_named_left_out_of_the_role_and_in_the_whole_one():
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    needed_rights = needed(
        manifest("ClusterRoleBinding", roleRef=reference), role(rule("example.org", "things", "get"))
    )
    assert [each.names for each in needed_rights.dangerous] == [("cluster-admin",)]
    assert "bind" not in needed_rights.text()
    assert "bind" in needed_rights.text(is_whole=True)


def test_a_role_that_gathers_others_needs_the_right_to_give_any():
    """Kubernetes asks the author of such a role for every right there is, or for `escalate`."""
    needed_rights = needed(manifest("ClusterRole", aggregationRule={"clusterRoleSelectors": [{}]}))
    assert [each.verbs for each in needed_rights.dangerous] == [("escalate",)]


def test_helms_own_records_its_hooks_and_the_namespace_are_needed_too():
    hook = manifest("Deployment", "apps/v1", "before")
    hook.raw["metadata"]["annotations"] = {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-output-log-policy": "hook-failed",
    }
    uses = {(use, resources) for use, resources in ((each.use, each.resources) for each in needed(hook).needs)}
    assert {("records", ("secrets",)), ("records", ("namespaces",)), ("hook", ("deployments",))} <= uses
    assert ("hook", ("pods/log",)) in uses


def test_a_removal_needs_no_right_to_make_or_to_grant():
    rights = [right("get", "create", "delete"), right("impersonate", use="grant"), right("create", use="hook")]
    assert [each.verbs for each in undoing(rights)] == [("get", "delete"), ("create",)]


# ── A plan ────────────────────────────────────────────────────────────────────────────────────────────────────────────
NEEDED = Rights("tiny", (right("get", "create"), right("bind", resource="roles", danger="it gives all", why="Role a")))


def codes(authority: Authority, cluster: Any) -> set[tuple[str, str]]:
    return {(note.severity, note.code) for note in permitting.notes(authority, NEEDED, cluster)}


def test_a_plan_is_blocked_where_rights_lack_and_names_the_dangerous_apart(settings):
    cluster = ClusterFactory()
    stored(cluster, HelmCredential, expires_at=now() + timedelta(hours=1))
    authority = permitting.authority(cluster, Judge(), NEEDED)
    assert authority.account == names.HELM_SERVICE_ACCOUNT
    assert codes(authority, cluster) == {("block", "rights"), ("block", "rights-dangerous")}
    held = permitting.authority(cluster, Judge(everything=True), NEEDED)
    assert codes(held, cluster) == {("warn", "rights-dangerous")}


def test_what_could_not_be_asked_is_said_and_not_taken_for_a_yes():
    cluster = ClusterFactory()
    stored(cluster, HelmCredential, expires_at=now() + timedelta(hours=1))
    authority = permitting.authority(cluster, Judge(refuses=True), NEEDED)
    assert not authority.is_known
    assert codes(authority, cluster) == {("warn", "rights-unknown")}


def test_a_cluster_administrator_is_used_only_where_rights_lack_and_is_named_with_its_end():
    cluster = ClusterFactory()
    until = now() + timedelta(hours=1)
    stored(cluster, HelmCredential, expires_at=until)
    stored(cluster, AdministratorCredential, expires_at=until)
    authority = permitting.authority(cluster, Judge(), NEEDED)
    assert authority.account == names.HELM_ADMIN_SERVICE_ACCOUNT
    assert datetime.fromisoformat(authority.administrator_until) == until.replace(microsecond=0)
    assert codes(authority, cluster) == {("warn", "cluster-admin")}
    assert permitting.authority(cluster, Judge(everything=True), NEEDED).administrator_until == ""


def test_one_that_has_ended_counts_for_nothing():
    cluster = ClusterFactory()
    stored(cluster, AdministratorCredential, expires_at=now() - timedelta(seconds=1))
    assert ("block", "rights") in codes(permitting.authority(cluster, Judge(), NEEDED), cluster)
    with pytest.raises(FleetRefused, match="has ended"):
        helm_credentials.for_run_as_administrator(cluster)


# ── A step ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def prepared(authority: Authority | None, **more: Any) -> Prepared:
    return Prepared(component="tiny", release="tiny", namespace="space", version="1.0.0", authority=authority, **more)


def test_a_plan_that_names_no_administrator_is_never_carried_out_as_one(monkeypatch):
    cluster = ClusterFactory()
    stored(cluster, AdministratorCredential, expires_at=now() + timedelta(hours=1))
    used = []
    monkeypatch.setattr(helm_credentials, "for_run", lambda c, seconds: used.append("helm"))
    monkeypatch.setattr(helm_credentials, "for_run_as_administrator", lambda c: used.append("administrator"))
    for authority in (None, Authority(names.HELM_SERVICE_ACCOUNT), Authority("", is_known=False)):
        for direction in ("forward", "revert"):
            permitting.credentials(cluster, prepared(authority), direction=direction, seconds=60)
    assert set(used) == {"helm"}
    named = prepared(Authority(names.HELM_ADMIN_SERVICE_ACCOUNT, administrator_until="2026-01-01T00:00:00+00:00"))
    permitting.credentials(cluster, named, direction="forward", seconds=60)
    assert used[-1] == "administrator"


def test_a_revert_after_the_end_goes_on_with_helms_own_rights():
    cluster = ClusterFactory()
    named = prepared(Authority(names.HELM_ADMIN_SERVICE_ACCOUNT, administrator_until="2026-01-01T00:00:00+00:00"))
    with pytest.raises(FleetRefused, match="has ended"):
        permitting.credentials(cluster, named, direction="forward", seconds=60)
    assert permitting.credentials(cluster, named, direction="revert", seconds=60)


def test_just_before_helm_what_lacks_is_refused_by_name_and_a_removal_asks_less():
    plan = prepared(Authority("setpoint-helm", (right("get", "create", "delete"),)))
    kube = Judge(("get", "things"), ("delete", "things"))
    with pytest.raises(Forbidden, match=r"lack create things\.example\.org"):
        permitting.check(kube, plan, direction="forward")
    permitting.check(kube, plan, direction="revert")
    with pytest.raises(Forbidden):
        permitting.check(kube, prepared(plan.authority, back_to=3), direction="revert")


# ── Administrator ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_printed_has_one_account_one_binding_and_its_end(settings):
    cluster = ClusterFactory(name="prod")
    out = io.StringIO()
    call_command("component_rights", "prod", "--cluster-admin", "--for", "2h", stdout=out)
    made = {raw["kind"]: raw for raw in yaml.safe_load_all(out.getvalue())}
    until = datetime.fromisoformat(made["ClusterRoleBinding"]["metadata"]["annotations"][administrator.UNTIL])
    assert timedelta(hours=2) <= until - datetime.now(UTC) <= timedelta(hours=2, minutes=15)
    assert [subject["name"] for subject in made["ClusterRoleBinding"]["subjects"]] == [names.HELM_ADMIN_SERVICE_ACCOUNT]
    assert "--duration=120m" in out.getvalue()
    assert cluster.name in out.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        ["--cluster-admin"],
        ["--cluster-admin", "--for", "2"],
        ["--cluster-admin", "--for", "25h"],
        ["--cluster-admin", "--for", "5m"],
        ["volcano", "--cluster-admin", "--for", "2h"],
        ["volcano", "--for", "2h"],
    ],
    ids=" ".join,
)
def test_without_an_end_that_makes_sense_nothing_is_printed(words):
    ClusterFactory(name="prod")
    with pytest.raises(CommandError):
        call_command("component_rights", "prod", *words)


def test_what_a_chart_gathers_and_binds_needs_the_right_to_bind_it():
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "chart"}
    gathers = manifest("ClusterRole", aggregationRule={"clusterRoleSelectors": [{}]})
    needed_rights = needed(gathers, manifest("ClusterRoleBinding", roleRef=reference))
    assert {(each.verbs, each.names) for each in needed_rights.needs if each.use in ("grant", "bind")} == {
        (("escalate",), ()),
        (("bind",), ("chart",)),
    }


def test_a_binding_among_hooks_needs_the_right_to_bind_although_its_role_comes_along():
    """Found with the network operator under helm v4, which made the binding first."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "chart"}
    binding = manifest("ClusterRoleBinding", roleRef=reference)
    assert [each for each in needed(role(), binding).needs if each.use == "bind"] == []
    binding.raw["metadata"]["annotations"] = {"helm.sh/hook": "pre-install"}
    assert [each.names for each in needed(role(), binding).needs if each.use == "bind"] == [("chart",)]
