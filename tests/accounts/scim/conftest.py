from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from accounts.models import Identity, RoleBinding, ScimUser, User
from accounts.providers import GroupRole, OidcProvider
from accounts.scim import clients

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
MAPPING = (
    GroupRole("ops", "operator", "env:staging"),
    GroupRole("approvers", "approver", "*"),
    GroupRole("admins", "admin", "*"),
    GroupRole("speech", "viewer", "team:3"),
)


class Directory:
    """A directory of one provider, with a token that works."""

    def __init__(self, provider: OidcProvider) -> None:
        self.provider = provider
        self.client, self.text = clients.issue(provider=provider, name=provider.key, days=30, by="command line")

    def send(self, method: str, path: str, body: Any = None, **extra: Any) -> Any:
        text = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.text}", **extra.pop("headers", {})}
        sent = {"content_type": "application/scim+json", "headers": headers} | extra
        return Client().generic(method, f"/scim/v2/{path}", text, **sent)

    def ok(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.send(method, path, body)
        assert answer.status_code in (200, 201), (answer.status_code, answer.content)
        assert answer["Content-Type"].startswith("application/scim+json")
        content: dict[str, Any] = answer.json()
        return content

    def refused(self, method: str, path: str, body: Any = None, *, status: int, kind: str = "", **extra: Any) -> str:
        """Return the detail of a refusal in SCIM's form."""
        answer = self.send(method, path, body, **extra)
        assert answer.status_code == status, (answer.status_code, answer.content)
        content = answer.json()
        assert (content["schemas"], content["status"], content.get("scimType", "")) == ([ERROR], str(status), kind)
        return str(content["detail"])

    def matches(self, kind: str, **values: str) -> list[str]:
        """Return the ids of the resources whose attributes have these values."""
        text = " and ".join(f"{name} eq {json.dumps(value)}" for name, value in values.items())
        return [row["id"] for row in self.ok("GET", f"{kind}?filter={quote(text)}")["Resources"]]

    def person(self, name: str = "ada@example.com", /, **over: Any) -> dict[str, Any]:
        return self.ok("POST", "Users", user(name, **over))

    def group(self, name: str, *members: str, **over: Any) -> dict[str, Any]:
        rows = [{"value": each} for each in members]
        return self.ok("POST", "Groups", {"schemas": [GROUP], "displayName": name, "members": rows} | over)

    def patch(self, path: str, *operations: dict[str, Any]) -> dict[str, Any]:
        return self.ok("PATCH", path, patch(*operations))


def user(name: str, /, **over: Any) -> dict[str, Any]:
    return {"schemas": [USER], "userName": name, "externalId": f"id-{name}", "active": True} | over


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"schemas": [PATCH], "Operations": list(operations)}


def account(resource: dict[str, Any]) -> User:
    return ScimUser.objects.get(pk=resource["id"]).user


def roles(resource: dict[str, Any]) -> set[tuple[str, str]]:
    rows = RoleBinding.objects.filter(user=account(resource))
    return {(row.role, row.scope) for row in rows if row.is_genuine}


def logged_in(resource: dict[str, Any], provider: OidcProvider) -> Client:
    """A browser of this person, who has logged in at the provider."""
    person = account(resource)
    Identity.objects.get_or_create(user=person, defaults={"issuer": provider.issuer, "subject": f"sub-{person.pk}"})
    browser = Client()
    browser.force_login(person)
    assert browser.get("/account/").status_code == 200
    return browser


@pytest.fixture
def providers(settings: Any, db: None) -> tuple[OidcProvider, OidcProvider]:
    corp, other = (
        OidcProvider(
            key,
            key.capitalize(),
            f"https://{key}.example.com",
            MAPPING,
            client_id="c",
            client_secret="s",
            scim_groups="displayName",
        )
        for key in ("corp", "other")
    )
    settings.SETPOINT_OIDC = (corp, other)
    return corp, other


@pytest.fixture
def corp(providers: tuple[OidcProvider, OidcProvider]) -> Directory:
    return Directory(providers[0])


@pytest.fixture
def other(providers: tuple[OidcProvider, OidcProvider]) -> Directory:
    return Directory(providers[1])
