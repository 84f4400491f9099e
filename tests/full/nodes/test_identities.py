"""Rights of each of Setpoint's identities in a cluster, tried on a real API server."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.fleet import FleetError, Forbidden
from clusters.kube.apiserver import APPLY, ApiServer, Call
from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import LOOPBACK, Plane

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
COMPONENTS, POLICIES = DEPLOY / "setpoint-components.yaml", DEPLOY / "setpoint-policies.yaml"
CONTROLLER, HELM, ISSUER = (
    names.CONTROLLER_SERVICE_ACCOUNT,
    names.HELM_SERVICE_ACCOUNT,
    names.HELM_ISSUER_SERVICE_ACCOUNT,
)
CORE, RBAC, ADMISSION = "/api/v1", "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
OURS = f"{CORE}/namespaces/{names.NAMESPACE}"
DRY = {"dryRun": "All"}


class Hand:
    """Any request with one identity's token. `may` answers whether it was let through both locks."""

    def __init__(self, plane: Plane, token: str) -> None:
        self.server = ApiServer(plane.credentials(token=token), policy=LOOPBACK, timeout=20)

    def may(self, method: str, path: str, body: Any = None, **query: str) -> bool:
        kind = {"content_type": APPLY} if method == "PATCH" else {}
        more = {"fieldManager": "test"} if method == "PATCH" else {}
        try:
            self.server.ask(Call("try", path), method, path, body=body, query={**query, **more} or None, **kind)
        except Forbidden:
            return False
        except FleetError as error:
            if "ValidatingAdmissionPolicy" in str(error):
                raise  # an expression that fails is no answer
            return True  # not there, or not valid: it was not forbidden
        return True


@pytest.fixture(scope="module")
def equipped(deployed: Plane, cluster_admin: Admin) -> Iterator[Plane]:
    deployed.kubectl("apply", "-f", str(COMPONENTS))
    cluster_admin.node("fenced", kwok=False)
    # What an administrator may give by mistake, so that only the policies are left.
    rules = [
        {"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list", "create", "update", "patch", "delete"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["setpoint.dev", "apps", "batch"], "resources": ["*"], "verbs": ["*"]},
    ]
    role = {"apiVersion": RBAC[6:], "kind": "ClusterRole", "metadata": {"name": "mistake"}, "rules": rules}
    accounts = [f"--serviceaccount={names.NAMESPACE}:{identity}" for identity in (CONTROLLER, HELM)]
    deployed.kubectl("apply", "-f", "-", text=json.dumps(role))
    deployed.kubectl("create", "clusterrolebinding", "mistake", "--clusterrole=mistake", *accounts)
    yield deployed
    cluster_admin.delete("nodes", "fenced")
    deployed.kubectl("delete", "clusterrolebinding,clusterrole", "mistake")
    deployed.kubectl("delete", "-f", str(COMPONENTS))


@pytest.fixture(scope="module")
def hands(equipped: Plane, cluster_admin: Admin) -> Iterator[Callable[[str], Hand]]:
    with contextlib.ExitStack() as stack:
        made: dict[str, Hand] = {}

        def hand(account: str) -> Hand:
            if account not in made:
                made[account] = Hand(equipped, cluster_admin.token(account))
                stack.callback(made[account].server.close)
            return made[account]

        deadline = time.monotonic() + 60  # policies are compiled a moment after they are stored
        while time.monotonic() < deadline and (
            hand(HELM).may("POST", f"{CORE}/nodes", named("v1", "Node"), **DRY)
            or hand(CONTROLLER).may(
                "POST", f"{CORE}/namespaces/default/configmaps", named("v1", "ConfigMap", "fence-probe")
            )
        ):
            time.sleep(0.3)  # what is not in force by then is what the tests find
        yield hand


def named(api_version: str, kind: str, name: str = "tried", **more: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more}


def role(name: str = "tried", verb: str = "get") -> dict[str, Any]:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]
    return named(RBAC[6:], "ClusterRole", name, rules=rules)


def bound(subject: dict[str, str], name: str = "tried", to: str = "view") -> dict[str, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": to}
    return named(RBAC[6:], "ClusterRoleBinding", name, roleRef=reference, subjects=[subject])


def account(name: str, namespace: str = names.NAMESPACE) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def filled(kind: str) -> dict[str, Any]:
    whose = {"kubernetes.io/service-account.name": "clusterrole-aggregation-controller"}
    made = named("v1", "Secret", "tried-token", type=kind)
    return made | {"metadata": {**made["metadata"], "annotations": whose}}


def webhook(api_group: str) -> dict[str, Any]:
    rule = {"apiGroups": [api_group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}
    hook = {"name": "a.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule]}
    hook |= {"clientConfig": {"url": "https://example.org/"}, "failurePolicy": "Ignore"}
    return named(ADMISSION[6:], "MutatingWebhookConfiguration", webhooks=[hook])


def policy(name: str = "tried") -> dict[str, Any]:
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["x.example.org"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["x"]}
            ]
        },
        "validations": [{"expression": "true"}],
    }
    return named(ADMISSION[6:], "ValidatingAdmissionPolicy", name, spec=spec)


TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
MAP = named("v1", "ConfigMap")
REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SubjectAccessReview",
    "spec": {"user": names.HELM_USERNAME, "resourceAttributes": {"verb": "get", "resource": "pods"}},
}
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"
VAP, BINDINGS = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"

TABLE = [
    # what, method, path, body, query; may setpoint-controller, setpoint-helm, setpoint-helm-issuer
    ("make a ConfigMap", "POST", f"{CORE}/namespaces/default/configmaps", MAP, {}, "no yes no"),
    ("try to make a ConfigMap", "POST", f"{CORE}/namespaces/default/configmaps", MAP, DRY, "yes yes no"),
    ("read Secrets", "GET", f"{CORE}/secrets", None, {}, "yes yes no"),
    ("make a Node", "POST", f"{CORE}/nodes", named("v1", "Node"), {}, "no no no"),
    ("delete a Node", "DELETE", f"{CORE}/nodes/fenced", None, DRY, "yes no no"),
    ("delete a Node for real", "DELETE", f"{CORE}/nodes/fenced", None, {}, "no no no"),
    ("make a role", "POST", f"{RBAC}/clusterroles", role(), DRY, "yes yes no"),
    ("make a role for real", "POST", f"{RBAC}/clusterroles", role("tried-twice"), {}, "no yes no"),
    ("change Setpoint's own role", "PATCH", f"{RBAC}/clusterroles/{HELM}", role(HELM), {}, "no no no"),
    ("bind for others", "POST", f"{RBAC}/clusterrolebindings", bound(account("x", "default")), DRY, "yes yes no"),
    ("bind for itself", "POST", f"{RBAC}/clusterrolebindings", bound(account(HELM)), {}, "no no no"),
    ("bind for its namespace", "POST", f"{RBAC}/clusterrolebindings",
     bound(group(f"system:serviceaccounts:{names.NAMESPACE}")), {}, "no no no"),
    ("bind for itself by its user name", "POST", f"{RBAC}/clusterrolebindings", bound(user(names.HELM_USERNAME)), {},
     "no no no"),
    ("bind for the controller in one namespace", "POST", f"{RBAC}/namespaces/default/rolebindings",
     bound(user(names.CONTROLLER_USERNAME)) | {"kind": "RoleBinding"}, {}, "no no no"),
    ("write in setpoint-system", "POST", f"{OURS}/secrets", named("v1", "Secret"), {}, "no no no"),
    ("delete Setpoint's namespace", "DELETE", OURS, None, DRY, "yes no no"),
    ("a token of the controller", "POST", f"{OURS}/serviceaccounts/{CONTROLLER}/token", TOKEN, {}, "yes no no"),
    ("a token of helm", "POST", f"{OURS}/serviceaccounts/{HELM}/token", TOKEN, {}, "no no yes"),
    ("a token of the agent", "POST", f"{OURS}/serviceaccounts/{names.AGENT_SERVICE_ACCOUNT}/token", TOKEN, {},
     "no no no"),
    ("a Secret that becomes another's token", "POST", f"{CORE}/namespaces/kube-system/secrets",
     filled("kubernetes.io/service-account-token"), {}, "no no no"),
    ("a Secret that becomes a node's token", "POST", f"{CORE}/namespaces/kube-system/secrets",
     filled("bootstrap.kubernetes.io/token"), {}, "no no no"),
    ("a Secret of a chart", "POST", f"{CORE}/namespaces/default/secrets", filled("Opaque"), DRY, "yes yes no"),
    ("a token of the cluster's own", "POST",
     f"{CORE}/namespaces/kube-system/serviceaccounts/clusterrole-aggregation-controller/token", TOKEN, {}, "no no no"),
    ("a NodeTuning", "POST", f"/apis/{names.API_VERSION}/{names.PLURAL}",
     named(names.API_VERSION, names.KIND, spec={"nodeUID": "x"}), DRY, "yes no no"),
    ("a node's own API", "GET", f"{CORE}/nodes/fenced/proxy/pods", None, {}, "no no no"),
    ("delete the definition", "DELETE", CRD, None, DRY, "yes no no"),
    ("a webhook", "POST", f"{ADMISSION}/mutatingwebhookconfigurations", webhook("example.org"), DRY, "yes yes no"),
    ("a webhook on NodeTunings", "POST", f"{ADMISSION}/mutatingwebhookconfigurations", webhook("setpoint.dev"), {},
     "no no no"),
    ("make an admission policy", "POST", VAP, policy(), DRY, "no no no"),
    ("change the fence", "PATCH", f"{VAP}/setpoint-helm-fence", policy("setpoint-helm-fence"), DRY, "no no no"),
    ("delete the fence", "DELETE", f"{VAP}/setpoint-helm-fence", None, DRY, "no no no"),
    ("delete the fence's binding", "DELETE", f"{BINDINGS}/setpoint-helm-fence", None, DRY, "no no no"),
    ("delete the spec policy", "DELETE", f"{VAP}/{names.SPEC_POLICY}", None, DRY, "no no no"),
    ("ask what others may do", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", REVIEW, {}, "yes no no"),
    ("a shell in a pod", "POST", f"{CORE}/namespaces/default/pods/any/exec", None, {"command": "sh"}, "no no no"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "method", "path", "body", "query", "may"), TABLE, ids=[row[0] for row in TABLE])
def test_what_each_identity_may_do(hands, what, method, path, body, query, may):
    """`yes`: neither RBAC nor a policy forbade it."""
    permitted = {identity: hands(identity).may(method, path, body, **query) for identity in (CONTROLLER, HELM, ISSUER)}
    assert permitted == {
        identity: word == "yes" for identity, word in zip((CONTROLLER, HELM, ISSUER), may.split(), strict=True)
    }


def test_no_identity_impersonates(equipped, hands):
    for identity in (CONTROLLER, HELM, ISSUER):
        server = hands(identity).server
        server._client.default_headers["Impersonate-User"] = "system:kube-controller-manager"
        try:
            assert not hands(identity).may("GET", f"{CORE}/nodes")
        finally:
            del server._client.default_headers["Impersonate-User"]


def test_kubernetes_asks_no_policy_about_admission_policies(equipped, cluster_admin):
    """The reason why the fence rests on roles without admission policies: with cluster-admin, helm could remove it."""
    accounts = f"--serviceaccount={names.NAMESPACE}:{HELM}"
    equipped.kubectl("create", "clusterrolebinding", "too-much", "--clusterrole=cluster-admin", accounts)
    hand = Hand(equipped, cluster_admin.token(HELM))
    try:
        deadline = time.monotonic() + 30
        while not hand.may("DELETE", f"{VAP}/setpoint-helm-fence", **DRY):
            assert time.monotonic() < deadline, "a policy guards policies by now: the documents say otherwise"
            time.sleep(0.2)
        assert not hand.may("POST", f"{CORE}/nodes", named("v1", "Node"), **DRY)
    finally:
        hand.server.close()
        equipped.kubectl("delete", "clusterrolebinding", "too-much")


def test_where_policy_objects_are_carried_out_the_controller_writes_their_kinds_and_only_where_profiles_may(
    equipped, hands
):
    """The policy for components asks whether the file for policy objects is applied, whose own fence then holds."""
    maps = f"{CORE}/namespaces/default/configmaps"
    roles = f"{RBAC}/namespaces/default/roles"
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    equipped.kubectl("apply", "-f", str(POLICIES))
    try:
        deadline = time.monotonic() + 60
        while not hands(CONTROLLER).may("POST", maps, named("v1", "ConfigMap", "of-a-profile")):
            assert time.monotonic() < deadline, "60 s after the manifest, the controller may not write a ConfigMap"
            time.sleep(0.3)
        # Answers 409 for one that is there already, which is no refusal either.
        while hands(CONTROLLER).may(
            "POST", f"{CORE}/namespaces/kube-public/configmaps", named("v1", "ConfigMap", "fence-probe")
        ):
            assert time.monotonic() < deadline, "60 s after the manifest, its fence is not in force"
            time.sleep(0.3)
        assert hands(CONTROLLER).may("POST", roles, named(RBAC[6:], "Role", rules=[]))
        for bad in (secrets, {**secrets, "resources": ["*"]}, {**secrets, "verbs": ["*"]}):
            assert not hands(CONTROLLER).may("POST", roles, named(RBAC[6:], "Role", "bad", rules=[bad]))
        assert not hands(CONTROLLER).may("POST", f"{CORE}/namespaces/default/secrets", named("v1", "Secret"))
        assert not hands(CONTROLLER).may("POST", f"{RBAC}/clusterroles", role("still-not"))
    finally:
        equipped.kubectl("delete", "-f", str(POLICIES))
        equipped.kubectl("delete", "configmap", "of-a-profile", "--ignore-not-found")
        equipped.kubectl("delete", "role", "tried", "--ignore-not-found")
        equipped.kubectl("delete", "configmap", "fence-probe", "-n", "kube-public", "--ignore-not-found")
