from __future__ import annotations

import pytest
from django.test import Client

from accounts.access import tokens
from accounts.models import ApiToken
from accounts.people import services
from audit.models import Record
from common.errors import Invalid, NotAllowed
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db


def call(text: str, scheme: str = "Bearer") -> int:
    return Client().get("/api/v1/me", headers={"Authorization": f"{scheme} {text}"}).status_code


def test_a_token_acts_as_its_owner() -> None:
    user = UserFactory(roles=["viewer@env:staging"])
    body = TokenClient(user, ["read"]).get("/api/v1/me").json()
    assert body["email"] == user.email
    assert body["bindings"][0]["scope"] == "env:staging"
    assert body["token"]["scopes"] == ["read"]


def test_only_a_hash_of_the_secret_is_stored_and_it_needs_the_pepper(settings) -> None:
    client = TokenClient(UserFactory())
    secret = client.text.partition(".")[2]
    stored = str(list(ApiToken.objects.values())) + str(list(Record.objects.values()))
    assert secret not in stored
    assert call(client.text) == 200
    settings.SETPOINT_TOKEN_PEPPER = "another"
    assert call(client.text) == 401


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t[:-1] + ("a" if t[-1] != "a" else "b"),
        lambda t: t + "a",
        lambda t: t.upper(),
        lambda t: t.replace(".", ""),
        lambda t: "",
        lambda t: "sp_.",
        lambda t: "\u00e9",
    ],
)
def test_a_token_is_refused_unless_it_is_exact(spoil) -> None:
    assert call(spoil(TokenClient(UserFactory()).text)) == 401


def test_another_scheme_is_refused() -> None:
    assert call(TokenClient(UserFactory()).text, "Token") == 401


def test_expired_revoked_and_ownerless_tokens_are_refused_in_the_same_words(clock) -> None:
    admin, user = UserFactory(roles=["admin"]), UserFactory()
    expired, revoked, ownerless = (TokenClient(user) for _ in range(3))
    assert {call(c.text) for c in (expired, revoked, ownerless)} == {200}
    tokens.revoke(token=revoked.token, by=user)
    details = {revoked.get("/api/v1/me").json()["detail"]}
    services.change_user(user=user, by=admin, is_active=False)
    details.add(ownerless.get("/api/v1/me").json()["detail"])
    clock.forward(days=2)
    details.add(expired.get("/api/v1/me").json()["detail"])
    assert details == {"This token is unknown, expired or revoked."}


def test_a_token_is_looked_up_by_its_key_without_sorting(django_assert_num_queries) -> None:
    """Every request of the API does so, and an order costs more to compile than the rest of the query."""
    client = TokenClient(UserFactory())

    with django_assert_num_queries(1) as made:
        assert tokens.authenticate(f"{client.text}x", address="") is None

    assert "ORDER BY" not in made.captured_queries[0]["sql"]


def test_use_is_noted_at_most_once_a_minute(clock) -> None:
    client = TokenClient(UserFactory())

    def used():
        client.get("/api/v1/me")
        return ApiToken.objects.get().last_used_at

    first = used()
    assert first == clock.at
    clock.forward(59)
    assert used() == first
    clock.forward(1)
    assert used() == clock.at


@pytest.mark.parametrize(
    ("scopes", "days", "field"),
    [
        (["approve"], 31, "days"),
        (["read"], 366, "days"),
        (["read"], 0, "days"),
        ([], 1, "scopes"),
        (["root"], 1, "scopes"),
    ],
)
def test_wishes_beyond_the_limits_are_refused(scopes: list[str], days: int, field: str) -> None:
    user = UserFactory(roles=["approver"])
    with pytest.raises(Invalid) as refused:
        tokens.issue(user=user, name="x", scopes=scopes, days=days, by=user)
    assert field in refused.value.fields
    assert not ApiToken.objects.exists()


def test_a_service_token_never_approves_and_only_administrators_make_one() -> None:
    machine, admin, user = UserFactory(is_service=True), UserFactory(roles=["admin"]), UserFactory(roles=["operator"])
    with pytest.raises(Invalid, match="not made"):
        tokens.issue(user=machine, name="ci", scopes=["apply", "approve"], days=1, by=admin)
    with pytest.raises(NotAllowed):
        tokens.issue(user=machine, name="ci", scopes=["apply"], days=1, by=user)
    token, _ = tokens.issue(user=machine, name="ci", scopes=["apply"], days=365, by=admin)
    assert token.kind == "service"


def test_nobody_makes_a_personal_token_for_somebody_else() -> None:
    with pytest.raises(NotAllowed, match="only they can"):
        tokens.issue(user=UserFactory(), name="x", scopes=["read"], days=1, by=UserFactory(is_superuser=True))


def test_a_token_cannot_make_a_stronger_one() -> None:
    client = TokenClient(UserFactory(roles=["approver", "admin"]), ["admin"])
    answer = client.post("/api/v1/tokens", {"name": "x", "scopes": ["approve"], "days": 1})
    assert answer.status_code == 403
    assert "approve" in answer.json()["detail"]
    assert client.post("/api/v1/tokens", {"name": "x", "scopes": ["admin"], "days": 1}).status_code == 201


def test_the_text_is_shown_once_even_if_the_request_is_repeated() -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    wish = {"name": "x", "scopes": ["read"], "days": 1}
    first = client.post("/api/v1/tokens", wish, headers={"Idempotency-Key": "k"})
    again = client.post("/api/v1/tokens", wish, headers={"Idempotency-Key": "k"})
    assert call(first.json()["token"]) == 200
    assert again.status_code == 201
    assert again.json() == first.json() | {"token": None}
    assert first.json()["token"] not in str(client.get("/api/v1/tokens").json())


def test_others_tokens_are_invisible_but_not_to_administrators() -> None:
    owner, other, admin = UserFactory(), UserFactory(roles=["operator"]), UserFactory(roles=["admin"])
    token = TokenClient(owner).token
    assert TokenClient(other).delete(f"/api/v1/tokens/{token.pk}").status_code == 404
    assert TokenClient(admin).delete(f"/api/v1/tokens/{token.pk}").status_code == 204
    token.refresh_from_db()
    assert token.revoked_at
    assert Record.objects.filter(action="token.revoke", target=f"token:{token.pk}").count() == 1


@pytest.mark.parametrize(
    ("scopes", "method", "path", "status"),
    [
        (["read"], "get", "/api/v1/users", 403),
        (["read", "plan", "apply"], "post", "/api/v1/users", 403),
        (["admin"], "get", "/api/v1/users", 200),
        (["admin"], "get", "/api/v1/me", 200),
        (["read"], "get", "/api/v1/role-bindings", 200),
        (["read"], "post", "/api/v1/role-bindings", 403),
    ],
)
def test_a_token_needs_the_scope_of_the_view(scopes: list[str], method: str, path: str, status: int) -> None:
    client = TokenClient(UserFactory(roles=["admin", "operator"]), scopes)
    answer = getattr(client, method)(path)
    assert answer.status_code == status
    if status == 403:
        assert "scope admin" in answer.json()["detail"]


def test_a_session_needs_its_csrf_token_and_a_token_does_not() -> None:
    user = UserFactory(roles=["admin"])
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    assert browser.get("/api/v1/me").status_code == 200
    refused = browser.post("/api/v1/users", {"email": "a@example.com"}, "application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    client = TokenClient(user, enforce_csrf_checks=True)
    assert client.post("/api/v1/users", {"email": "a@example.com"}).status_code == 201
