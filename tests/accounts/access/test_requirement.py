"""Laws of SETPOINT_SECOND_FACTOR: a browser whose role needs a second factor does nothing before it has one."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import Identity, RoleBinding, User
from config import env, oidc
from config.env import BadEnvironment
from tests.accounts.authenticator import PAGE, begin, code, code_step, enroll, is_in, password_step
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _required_of_two_roles(settings) -> None:
    settings.SETPOINT_SECOND_FACTOR = frozenset({"admin", "approver"})


def logged_in(user: User) -> Client:
    client = Client()
    assert client.post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 302
    return client


@pytest.mark.parametrize(
    ("account", "is_led"),
    [
        ({"roles": ["admin"]}, True),
        ({"roles": ["viewer", "approver@env:staging"]}, True),
        ({"is_superuser": True}, True),
        ({"roles": ["operator"]}, False),
        ({}, False),
    ],
)
def test_a_role_of_the_setting_is_led_to_set_it_up(account, is_led) -> None:
    client = logged_in(UserFactory(**account))
    page = client.get("/account/")
    assert (page.status_code, page.headers.get("Location")) == ((302, PAGE) if is_led else (200, None))


def test_viewer_in_the_setting_means_everybody_with_a_role(settings) -> None:
    settings.SETPOINT_SECOND_FACTOR = frozenset({"viewer"})
    for roles, is_led in ((["operator@env:staging"], True), (["viewer"], True), ([], False)):
        assert is_in(logged_in(UserFactory(roles=roles))) is not is_led


def test_nothing_else_works_before_and_everything_after() -> None:
    user = UserFactory(roles=["admin"])
    client = logged_in(user)
    for path in ("/", "/people/", "/account/", "/plans/", "/nothing-here/"):
        assert client.get(path).headers.get("Location") == PAGE
    assert client.post("/people/", {"email": "new@example.com"}).headers.get("Location") == PAGE
    assert not User.objects.filter(email="new@example.com").exists()
    rest = client.get("/api/v1/me")
    assert (rest.status_code, rest.json()["code"]) == (403, "second-factor-needed")
    part = client.get("/people/", headers={"HX-Request": "true"})
    assert (part.status_code, part["HX-Redirect"]) == (403, PAGE)
    assert client.get(PAGE).context["is_missing"]

    key = begin(client)
    assert client.get("/people/")["Location"] == PAGE, "a key that is not confirmed is none"
    assert client.post(f"{PAGE}confirm/", {"code": code(key)}).status_code == 200
    assert client.get("/people/").status_code == 200
    assert client.get("/api/v1/me").status_code == 200


def test_it_holds_from_the_next_request_where_a_role_is_given_and_after_a_removal(clock) -> None:
    user = UserFactory(roles=["viewer"])
    client = logged_in(user)
    assert is_in(client)
    RoleBinding.objects.create(user=user, role="approver")
    assert not is_in(client)

    key, _ = enroll(user)
    clock.forward(60)
    client = password_step(user)
    assert code_step(client, code(key)) == 302
    assert is_in(client)
    clock.forward(60)
    client.post(f"{PAGE}remove/", {"remove-password": PASSWORD, "remove-code": code(key)})
    assert client.get("/account/")["Location"] == PAGE


def test_a_header_of_a_token_opens_no_page_with_a_session() -> None:
    client = logged_in(UserFactory(roles=["admin"]))
    assert client.get("/people/", headers={"Authorization": "Bearer sp_x.y"})["Location"] == PAGE


def test_tokens_log_out_and_single_sign_on_are_not_affected() -> None:
    user = UserFactory(roles=["admin"])
    assert TokenClient(user, ["read"]).get("/api/v1/me").status_code == 200
    client = logged_in(user)
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/login/").status_code == 200

    other = UserFactory(roles=["admin"])
    earlier = logged_in(other)
    Identity.objects.create(user=other, issuer="https://id.example.com", subject="1")
    assert is_in(earlier)


def test_the_setting_costs_a_session_with_a_code_no_query(settings, clock, django_assert_num_queries) -> None:
    user = UserFactory(roles=["admin"])
    key, _ = enroll(user)
    clock.forward(60)
    client = password_step(user)
    code_step(client, code(key))
    client.get("/account/")
    with CaptureQueriesContext(connection) as queries:
        client.get("/account/")
    settings.SETPOINT_SECOND_FACTOR = frozenset()
    with django_assert_num_queries(len(queries)):
        client.get("/account/")


def test_a_word_that_is_no_role_ends_the_process(monkeypatch) -> None:
    monkeypatch.setenv("SETPOINT_SECOND_FACTOR", "admin, approver")
    assert env.some_of("SETPOINT_SECOND_FACTOR", oidc.ROLES) == {"admin", "approver"}
    monkeypatch.setenv("SETPOINT_SECOND_FACTOR", "admin, keeper")
    with pytest.raises(BadEnvironment, match=r"SETPOINT_SECOND_FACTOR.*'keeper'"):
        env.some_of("SETPOINT_SECOND_FACTOR", oidc.ROLES)
