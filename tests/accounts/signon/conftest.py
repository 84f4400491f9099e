from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from accounts.providers import GroupRole, OidcProvider
from tests.accounts.signon.issuer import CLIENT, SECRET, Issuer

MAPPING = (
    GroupRole("ops", "operator", "env:staging"),
    GroupRole("approvers", "approver", "*"),
    GroupRole("admins", "admin", "*"),
)


@pytest.fixture
def issuer(settings: Any) -> Iterator[Issuer]:
    """A provider that Setpoint is set to believe, with Ada of the group ops logged in there."""
    provider = Issuer()
    provider.claims = {"sub": "ada-1", "email": "ada@example.com", "email_verified": True, "groups": ["ops", "x"]}
    settings.SETPOINT_OIDC = (
        OidcProvider("corp", "Example Corp", provider.url, MAPPING, client_id=CLIENT, client_secret=SECRET),
    )
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    yield provider
    provider.close()


LogIn = Callable[..., Any]


@pytest.fixture
def log_in(issuer: Issuer) -> LogIn:
    """Log in as the person with these claims beside the usual ones; returns the answer that ends it."""

    def log_in(client: Client | None = None, over: dict[str, str] | None = None, **claims: Any) -> Any:
        issuer.claims |= claims
        browser = client or Client()
        begun = browser.get("/login/with/corp/")
        assert begun.status_code == 302, begun.content
        return browser.get(f"/login/with/corp/back/?{issuer.authorize(begun['Location'], **(over or {}))}")

    return log_in
