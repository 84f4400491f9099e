from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from accounts.models import ApiToken, User, WorkloadRule
from accounts.workloads import issuers, rules
from tests.accounts.signon.issuer import Issuer, signed
from tests.accounts.workloads.claims import GITHUB
from tests.factories import UserFactory

AUDIENCE = "https://setpoint.example.com"
FORM = "application/x-www-form-urlencoded"
GRANT = {
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
}


class Bench:
    """An issuer, an administrator, a machine's account, and rules that are made as an administrator makes them."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.admin: User = UserFactory(roles=["admin"])
        self.machine: User = UserFactory(email="ci@example.com", is_service=True, roles=["operator"])
        self.sign: Callable[[dict[str, Any]], str] = signed

    def wishes(self, **over: Any) -> dict[str, Any]:
        return {
            "name": "deploy",
            "issuer": self.issuer.url,
            "audience": AUDIENCE,
            "account": self.machine.email,
            "conditions": {"sub": GITHUB["sub"]},
            "scopes": ["read", "plan"],
            "minutes": 15,
        } | over

    def rule(self, **over: Any) -> WorkloadRule:
        done = rules.make(by=self.admin, **self.wishes(**over))
        assert isinstance(done, WorkloadRule)
        return done

    def claims(self, **over: Any) -> dict[str, Any]:
        at = int(time.time())
        times = {"iat": at, "nbf": at - 5, "exp": at + 300}
        claims = {"iss": self.issuer.url, "aud": AUDIENCE, "jti": secrets.token_hex(8), **times, **GITHUB, **over}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, **over: Any) -> str:
        return self.sign(self.claims(**over))

    def post(self, token: str, *, address: str = "192.0.2.7", **sent: Any) -> Any:
        body = urlencode({**GRANT, "subject_token": token, **sent}, doseq=True)
        return Client().post("/oauth/token", body, content_type=FORM, REMOTE_ADDR=address)


def call(text: str, path: str = "/api/v1/me", *, address: str = "192.0.2.7") -> Any:
    return Client().get(path, headers={"Authorization": f"Bearer {text}"}, REMOTE_ADDR=address)


def refused(answer: Any, error: str = "invalid_request", status: int = 400) -> str:
    """Return the description of a refusal, which made no token."""
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.content
    assert ApiToken.objects.filter(kind="workload").count() == 0
    return str(answer.json()["error_description"])


@pytest.fixture
def bench(settings: Any, db: None) -> Iterator[Bench]:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    settings.BASE_URL = AUDIENCE
    issuers.forget()
    issuer = Issuer()
    yield Bench(issuer)
    issuer.close()
    issuers.forget()
