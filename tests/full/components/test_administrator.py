"""helm as a temporary cluster administrator, on a real API server: its allowed makers, and its end."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from clusters.connection import helm_credentials
from clusters.fleet import CredentialsRefused, FleetError, FleetRefused, Forbidden
from clusters.kube import tokens
from clusters.kube.apiserver import ApiServer, Call
from clusters.models import AdministratorCredential
from common.clock import now
from common.errors import Invalid
from components.access import administrator
from contract import names
from tests.components.packing import versioned
from tests.controlplane.admin import Admin
from tests.controlplane.plane import LOOPBACK, Plane
from tests.full.components.test_rights import Place, cluster, fenced
from tests.full.harness.client import eventually

__all__ = ["cluster", "fenced"]
pytestmark = pytest.mark.django_db
NAME = names.HELM_ADMIN_SERVICE_ACCOUNT
POD = {"containers": [{"name": "one", "image": "registry.example.org/one"}]}
EVERYTHING = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ .Release.Namespace }}-everything}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: operator, namespace: {{ .Release.Namespace }}}]
"""


LEEWAY = 60
"""Seconds for which API servers still accept a token that has expired, for the sake of clocks."""


def apply(plane: Plane, until: Any) -> None:
    for raw in administrator.objects(until):
        plane.kubectl("apply", "-f", "-", text=json.dumps(raw))


@pytest.fixture
def made(fenced: Plane, cluster_admin: Admin) -> Iterator[Plane]:
    """The time-limited binding, applied as the cluster's administrator does: for an hour, and known to be in force."""
    apply(fenced, now() + timedelta(hours=1))
    # The API server may still judge by the policy of the test before, which refuses everything.
    eventually(lambda: refusal(cluster_admin, 7200) != "" and refusal(cluster_admin, 600) == "", seconds=60)
    yield fenced
    fenced.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", administrator.ENDS)
    fenced.kubectl("delete", f"clusterrolebinding/{NAME}")
    fenced.kubectl("delete", f"serviceaccount/{NAME}", "-n", names.NAMESPACE)


def token(admin: Admin, seconds: int) -> str:
    spec = {"expirationSeconds": seconds}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(admin.post("serviceaccounts", NAME, "token", request, names.NAMESPACE)["status"]["token"])


def refusal(admin: Admin, seconds: int) -> str:
    try:
        token(admin, seconds)
    except FleetRefused as error:
        return str(error)
    return ""


def test_none_of_setpoints_accounts_may_make_itself_one(made: Plane, cluster_admin: Admin) -> None:
    for account in (
        names.CONTROLLER_SERVICE_ACCOUNT,
        names.HELM_SERVICE_ACCOUNT,
        names.HELM_ISSUER_SERVICE_ACCOUNT,
        names.AGENT_SERVICE_ACCOUNT,
    ):
        as_it = Admin(made, made.credentials(token=cluster_admin.token(account)))
        with pytest.raises(Forbidden):
            token(as_it, 600)
        as_it.close()


def test_even_a_cluster_administrator_makes_no_token_that_outlasts_the_end(made: Plane, cluster_admin: Admin) -> None:
    assert refusal(cluster_admin, 1800) == ""
    assert "an administrator until" in refusal(cluster_admin, 2 * 3600)


def test_after_the_end_neither_token_nor_pod_nor_secret_of_it_can_be_made(made: Plane, cluster_admin: Admin) -> None:
    """Tried without Setpoint, and against it: the binding is left, and is of no use."""
    apply(made, now() - timedelta(seconds=1))
    eventually(lambda: refusal(cluster_admin, 600) != "", seconds=60)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "thief"},
        "spec": {**POD, "serviceAccountName": NAME},
    }
    with pytest.raises(FleetRefused, match="no pod runs as"):
        cluster_admin.create("pods", pod, names.NAMESPACE)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "thief", "annotations": {"kubernetes.io/service-account.name": NAME}},
    }
    with pytest.raises(RuntimeError, match="no Secret holds"):
        made.kubectl("create", "-n", names.NAMESPACE, "-f", "-", text=json.dumps(secret))
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "free"}}
    cluster_admin.create("configmaps", other, names.NAMESPACE)
    cluster_admin.delete("configmaps", "free", names.NAMESPACE)


def signed(plane: Plane, template: str, seconds: int) -> str:
    """The same token with an end in a moment, as the API server would have signed it that much earlier."""
    key: Any = serialization.load_pem_private_key((plane.folder / "sa.key").read_bytes(), None)
    header = template.partition(".")[0]
    claims = tokens.claims(template) | {"exp": int(time.time()) + seconds}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    text = f"{header}.{payload}"
    r, s = decode_dss_signature(key.sign(text.encode(), ECDSA(hashes.SHA256())))
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def test_the_api_server_itself_ends_the_token(made: Plane, cluster_admin: Admin) -> None:
    short = signed(made, token(cluster_admin, 600), -LEEWAY // 2)
    server = ApiServer(made.credentials(token=short), policy=LOOPBACK, timeout=20)
    call, path = Call("list", "secrets"), "/api/v1/secrets"

    def is_over() -> bool:
        try:
            server.get(call, path)
        except CredentialsRefused:
            return True
        return False

    try:
        assert server.get(call, path)["kind"] == "SecretList"
        eventually(is_over, seconds=3 * LEEWAY)
    finally:
        server.close()


def test_a_plan_that_names_it_is_carried_out_as_one_and_not_after_its_end(
    cluster: Any, made: Plane, cluster_admin: Admin, tmp_path: Any
) -> None:
    place = Place(cluster, made, versioned("everything", "1.0.0", EVERYTHING), tmp_path)
    try:
        assert "rights-dangerous" in blocks(place)
        with pytest.raises(Invalid, match="service account"):
            helm_credentials.store_administrator(cluster, cluster_admin.token(names.HELM_SERVICE_ACCOUNT), by="a test")
        helm_credentials.store_administrator(cluster, token(cluster_admin, 1200), by="a test")
        planned = place.prepare()
        assert blocks(place) == []
        assert planned.authority is not None
        assert planned.authority.account == NAME
        assert "cluster-admin" in {note.code for note in planned.notes}
        place.carry_out(planned)
        assert f"{place.name}-everything" in made.kubectl("get", "clusterrolebindings", "-o", "name")
        place.carry_out(planned, "revert")
        assert f"{place.name}-everything" not in made.kubectl("get", "clusterrolebindings", "-o", "name")

        AdministratorCredential.objects.update(expires_at=now() - timedelta(seconds=1))
        assert "rights-dangerous" in blocks(place)
        with pytest.raises(FleetError, match="has ended"):
            place.carry_out(planned)
    finally:
        place.tidy()


def blocks(place: Place) -> list[str]:
    return [note.code for note in place.prepare().notes if note.severity == "block"]
