"""Workload identity with real issuers: npm's certified oidc-provider, and kube-apiserver for service accounts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from django.test import Client

from accounts.models import WorkloadRule
from accounts.workloads import issuers, rules
from audit.models import Record
from tests.accounts.workloads.conftest import FORM, GRANT
from tests.controlplane.plane import Plane
from tests.factories import UserFactory
from tests.full.harness.oidc_provider import PACKAGE, real_provider

pytestmark = [pytest.mark.full, pytest.mark.django_db, pytest.mark.long]
AUDIENCE = "https://setpoint.example.com"


@pytest.fixture(autouse=True)
def installation(settings: Any) -> Iterator[None]:
    settings.BASE_URL = AUDIENCE
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    issuers.forget()
    yield
    issuers.forget()


def rule(**wishes: Any) -> WorkloadRule:
    account = UserFactory(is_service=True, roles=["viewer"])
    given = {"name": "deploy", "audience": AUDIENCE, "account": account.email, "scopes": ["read"], "minutes": 15}
    done = rules.make(by=UserFactory(roles=["admin"]), **(given | wishes))
    assert isinstance(done, WorkloadRule)
    return done


def exchange(token: str) -> Any:
    body = urlencode({**GRANT, "subject_token": token})
    return Client().post("/oauth/token", body, content_type=FORM)


def acts(answer: Any) -> str:
    """Return the account that the token of this answer acts as."""
    assert answer.status_code == 200, answer.content
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    return str(Client().get("/api/v1/me", headers=headers).json()["email"])


def key_set(kid: str, *, is_public: bool = False) -> dict[str, Any]:
    key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1())))
    if is_public:
        del key["d"]
    return {"keys": [{**key, "kid": kid, "use": "sig", "alg": "ES256"}]}


@pytest.mark.skipif(not PACKAGE.exists(), reason="no oidc-provider: make vendor")
def test_a_certified_provider_rotates_its_keys_and_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuers, "AGAIN_SECONDS", 0.0)
    with real_provider(tmp_path, f"{AUDIENCE}/login/with/corp/back/") as provider:
        provider.start(audience=AUDIENCE)  # its own key, by RSA
        made = rule(issuer=provider.issuer, conditions={"sub": "setpoint"})
        first = provider.token_of_workload()
        assert acts(exchange(first)) == made.account.email
        assert exchange(first).status_code == 400, "each is exchanged once"
        unused = provider.token_of_workload()
        provider.stop()
        provider.start(audience=AUDIENCE, jwks=key_set("next"))

        assert acts(exchange(provider.token_of_workload())) == made.account.email
        assert exchange(unused).status_code == 400, "its key is no longer published"

        last = provider.token_of_workload()
        provider.stop()
        provider.start(audience="https://other.example.com", jwks=key_set("other"))
        assert exchange(provider.token_of_workload()).status_code == 400, "for another service"
        provider.stop()
        issuers.forget()
        answer = exchange(last)
        assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")


def test_service_accounts_of_a_real_cluster_and_of_no_other(plane: Plane) -> None:
    """The issuer's name is that of many clusters, and has no public address: the rule has the keys."""
    keys = json.loads(plane.kubectl("get", "--raw", "/openid/v1/jwks"))
    issuer = json.loads(plane.kubectl("get", "--raw", "/.well-known/openid-configuration"))["issuer"]
    conditions = {"kubernetes.io.namespace": "default", "kubernetes.io.serviceaccount.name": "default"}
    made = rule(issuer=issuer, conditions=conditions, keys=keys, may_repeat=True)
    token = plane.kubectl("create", "token", "default", f"--audience={AUDIENCE}", "--duration=10m").strip()

    assert [acts(exchange(token)) for _ in range(2)] == [made.account.email] * 2

    assert Record.objects.filter(action="token.exchange")[0].after["subject"] == "system:serviceaccount:default:default"
    for_the_cluster = plane.kubectl("create", "token", "default").strip()
    both = plane.kubectl("create", "token", "default", f"--audience={AUDIENCE}", f"--audience={issuer}").strip()
    elsewhere = plane.kubectl("create", "token", "default", "-n", "kube-system", f"--audience={AUDIENCE}").strip()
    for refused in (for_the_cluster, both, elsewhere):
        assert exchange(refused).status_code == 400
    kid = str(jwt.get_unverified_header(token)["kid"])
    rules.delete(rule=made, by=UserFactory(roles=["admin"]))
    rule(issuer=issuer, conditions=conditions, keys=key_set(kid, is_public=True))
    assert exchange(token).status_code == 400, "another cluster's keys under the same names"
