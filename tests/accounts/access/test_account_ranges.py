"""Laws of an account's address ranges: from outside there is no log-in, no session and no token of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.access import account_ranges
from accounts.models import LiveSession, RoleBinding, User
from audit.models import Record
from config import env
from config.env import BadEnvironment
from tests.accounts.authenticator import code, code_step, enroll, password_step
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db

INSIDE, OUTSIDE = {"REMOTE_ADDR": "192.0.2.7"}, {"REMOTE_ADDR": "198.51.100.9"}


def limited(*roles: str, networks: str = "192.0.2.0/24", **fields: Any) -> User:
    return UserFactory(roles=list(roles), networks=networks, **fields)


def attempt(user: User, password: str = PASSWORD, client: Client | None = None, **extra: Any) -> Any:
    return (client or Client()).post("/login/", {"email": user.email, "password": password}, **extra)


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    assert client.get("/account/", **INSIDE).status_code == 200
    return client


def refusals() -> list[str]:
    return list(Record.objects.filter(action="session.refuse").values_list("message", flat=True))


# ── Log-ins ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_from_outside_the_right_password_is_answered_as_a_wrong_one_and_recorded() -> None:
    user = limited("admin")
    wrong, right = attempt(user, "wrong", **OUTSIDE), attempt(user, **OUTSIDE)
    assert wrong.status_code == right.status_code == 401
    assert (wrong.context["tries_left"], right.context["tries_left"]) == (4, 3)
    alike = wrong.context["error"].replace("4 more tries", "3 more tries")
    assert right.context["error"] == alike
    assert wrong.headers.keys() == right.headers.keys()
    assert wrong.cookies.keys() == right.cookies.keys()
    assert refusals() == [f"198.51.100.9 with the right password: {account_ranges.OUTSIDE}"]
    assert attempt(user, **INSIDE).status_code == 302


def test_tries_from_outside_are_counted_and_the_right_password_forgives_none() -> None:
    user = limited()
    codes = [attempt(user, **OUTSIDE).status_code for _ in range(6)]
    assert codes == [401] * 5 + [429]


def test_from_outside_no_code_is_asked_for(clock) -> None:
    user = UserFactory()
    enroll(user)
    user.put_marked(networks="192.0.2.0/24")
    client = Client()
    assert attempt(user, client=client, **OUTSIDE).status_code == 401
    assert code_step(client, "000000", **INSIDE) == 401, "nothing waits in this browser"
    assert password_step(user, **INSIDE)


def test_a_log_in_that_waits_for_its_code_ends_elsewhere(clock) -> None:
    user = UserFactory()
    key, _ = enroll(user)
    clock.forward(60)
    user.put_marked(networks="192.0.2.0/24")
    client = password_step(user, **INSIDE)
    assert code_step(client, code(key), **OUTSIDE) == 401
    assert refusals() == [f"198.51.100.9 after the right password: {account_ranges.OUTSIDE}"]
    assert code_step(client, code(key), **INSIDE) == 401, "it is over"
    assert "_auth_user_id" not in client.session


# ── Sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("way", ["page", "rest", "htmx", "post"])
def test_a_session_used_from_outside_ends_and_does_nothing(way) -> None:
    user = limited("admin")
    client = logged_in(user)
    calls = {
        "page": lambda: client.get("/people/", **OUTSIDE),
        "rest": lambda: client.get("/api/v1/me", **OUTSIDE),
        "htmx": lambda: client.get("/people/", headers={"HX-Request": "true"}, **OUTSIDE),
        "post": lambda: client.post("/people/", {"email": "new@example.com"}, **OUTSIDE),
    }
    answer = calls[way]()
    assert answer.status_code in (302, 401)
    assert user.email not in answer.content.decode()
    assert not User.objects.filter(email="new@example.com").exists()
    assert client.get("/api/v1/me", **INSIDE).status_code == 401, "the session is over"
    assert refusals() == [f"198.51.100.9 with a session, which ended: {account_ranges.OUTSIDE}"]


def test_ranges_hold_for_sessions_that_are_there_already() -> None:
    user = UserFactory(roles=["viewer"])
    client = Client()
    client.force_login(user)
    assert client.get("/account/", **OUTSIDE).status_code == 200
    user.put_marked(networks="192.0.2.0/24")
    assert client.get("/account/", **OUTSIDE).status_code == 302
    assert attempt(user, client=client, **INSIDE).status_code == 302
    assert LiveSession.objects.filter(user=user, address="192.0.2.7").exists()


# ── The address ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("ranges", "address", "is_in"),
    [
        ("192.0.2.0/24", "::ffff:192.0.2.7", True),
        ("192.0.2.0/24", "::ffff:198.51.100.9", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("2001:db8::/32", "fe80::1%2001:db8::1", False),
        ("2001:db8::/32", "192.0.2.7", False),
        ("192.0.2.0/24 2001:db8::/32", "2001:db8::9", True),
        ("192.0.2.7/32", "192.0.2.8", False),
        ("192.0.2.0/24", "", False),
        ("192.0.2.0/24", "192.0.2.7:5000", False),
        ("192.0.2.0/24", "unknown", False),
        ("fe80::%a b/64", "fe80::1", False),
        ("192.0.2.0/24 rubbish", "192.0.2.7", False),
    ],
)
def test_the_ranges_decide_by_the_address_itself(ranges, address, is_in) -> None:
    user = limited("viewer", networks=ranges)
    assert account_ranges.admits(user, address) is is_in
    client = Client()
    client.force_login(user)
    assert (client.get("/account/", REMOTE_ADDR=address).status_code == 200) is is_in


@pytest.mark.parametrize(
    ("proxies", "forwarded", "is_in"),
    [
        (0, "192.0.2.7", False),
        (1, "192.0.2.7, 198.51.100.9", False),
        (1, "198.51.100.9, 192.0.2.7", True),
        (2, "192.0.2.7, 198.51.100.9, 10.0.0.1", False),
        (2, "198.51.100.9, 192.0.2.7, 10.0.0.1", True),
        (2, "192.0.2.7", False),
        (1, "192.0.2.7,", True),
    ],
)
def test_a_forged_header_leads_nobody_in(settings, proxies, forwarded, is_in) -> None:
    settings.SETPOINT_PROXIES = proxies
    user = limited("viewer")
    header = {"HTTP_X_FORWARDED_FOR": forwarded, **OUTSIDE}
    assert attempt(user, **header).status_code == (302 if is_in else 401)
    client = Client()
    client.force_login(user)
    assert (client.get("/account/", **header).status_code == 200) is is_in


# ── Tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("is_service", [False, True])
def test_a_token_is_held_to_its_own_ranges_and_to_those_of_its_owner(is_service) -> None:
    user = UserFactory(roles=["viewer"], is_service=is_service)
    client = TokenClient(user, ["read"])
    assert client.get("/api/v1/me", **OUTSIDE).status_code == 200
    user.put_marked(networks="192.0.2.0/24 10.0.0.0/8")
    refused = client.get("/api/v1/me", **OUTSIDE)
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    assert "198.51.100.9" in refused.json()["detail"]
    client.get("/api/v1/me", **OUTSIDE)
    assert Record.objects.get(action="token.refuse").message == "198.51.100.9", "once a minute"
    assert client.get("/api/v1/me", **INSIDE).status_code == 200


def test_a_token_with_ranges_elsewhere_than_its_owners_is_accepted_nowhere() -> None:
    user = UserFactory(roles=["admin"])
    own = TokenClient(user)
    made = own.post("/api/v1/tokens", {"name": "x", "scopes": ["read"], "days": 1, "networks": ["198.51.100.0/24"]})
    user.put_marked(networks="192.0.2.0/24")
    for place in (INSIDE, OUTSIDE):
        header = {"Authorization": f"Bearer {made.json()['token']}"}
        assert Client().get("/api/v1/me", headers=header, **place).status_code == 403


# ── Roles of power ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("account", "is_held"),
    [
        ({"roles": ["admin"]}, True),
        ({"roles": ["approver@env:staging"]}, True),
        ({"roles": ["viewer", "operator@env:development"]}, True),
        ({"roles": ["break-glass"]}, True),
        ({"is_superuser": True}, True),
        ({"roles": ["viewer"]}, False),
        ({"roles": ["auditor"]}, False),
        ({}, False),
    ],
)
def test_the_setting_holds_roles_of_power_and_no_others(settings, account, is_held) -> None:
    settings.SETPOINT_POWER_NETWORKS = "192.0.2.0/24"
    user = UserFactory(**account)
    token = TokenClient(user, ["read"])
    assert attempt(user, **OUTSIDE).status_code == (401 if is_held else 302)
    assert token.get("/api/v1/me", **OUTSIDE).status_code == (403 if is_held else 200)
    assert token.get("/api/v1/me", **INSIDE).status_code == 200
    assert attempt(user, **INSIDE).status_code == 302


def test_a_role_that_is_given_ends_the_session_outside(settings) -> None:
    settings.SETPOINT_POWER_NETWORKS = "192.0.2.0/24"
    user = UserFactory(roles=["viewer"])
    client = Client()
    client.force_login(user)
    assert client.get("/account/", **OUTSIDE).status_code == 200
    RoleBinding.objects.create(user=user, role="operator", scope="env:staging")
    assert client.get("/account/", **OUTSIDE).status_code == 302


def test_ones_own_ranges_and_the_setting_hold_both(settings) -> None:
    settings.SETPOINT_POWER_NETWORKS = "192.0.2.0/24 198.51.100.0/24"
    user = limited("operator")
    assert account_ranges.admits(user, "192.0.2.7")
    assert not account_ranges.admits(user, "198.51.100.9")
    user.put_marked(networks="10.0.0.0/8")
    assert not account_ranges.admits(user, "10.0.0.1")


def test_a_setting_that_names_no_ranges_ends_the_start(monkeypatch) -> None:
    for text in ("10.0.0.1/8", "office", "0.0.0.0/0", "::/0"):
        monkeypatch.setenv("SETPOINT_POWER_NETWORKS", text)
        with pytest.raises(BadEnvironment, match="SETPOINT_POWER_NETWORKS"):
            env.networks("SETPOINT_POWER_NETWORKS")
    for text in (",", " , ,"):
        monkeypatch.setenv("SETPOINT_POWER_NETWORKS", text)
        with pytest.raises(BadEnvironment, match="SETPOINT_POWER_NETWORKS has no address range"):
            env.networks("SETPOINT_POWER_NETWORKS")
    monkeypatch.setenv("SETPOINT_POWER_NETWORKS", " ")
    assert env.networks("SETPOINT_POWER_NETWORKS") == ""
    monkeypatch.setenv("SETPOINT_POWER_NETWORKS", "10.0.0.0/8, 2001:db8::/32")
    assert env.networks("SETPOINT_POWER_NETWORKS") == "10.0.0.0/8 2001:db8::/32"
    monkeypatch.delenv("SETPOINT_POWER_NETWORKS")
    assert env.networks("SETPOINT_POWER_NETWORKS") == ""


# ── The table ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("forged", ["", "0.0.0.0/0", "198.51.100.0/24", "rubbish"])
def test_ranges_that_were_changed_in_the_table_open_nothing(forged) -> None:
    user = limited("admin")
    client, token = logged_in(user), TokenClient(user)
    User.objects.filter(pk=user.pk).update(networks=forged)
    assert client.get("/account/", **OUTSIDE).status_code == 302
    assert attempt(user, **OUTSIDE).status_code == 401
    assert attempt(user, **INSIDE).status_code == 401, "an account changed in the table logs in as no one"
    for place in (INSIDE, OUTSIDE):
        assert token.get("/api/v1/users", **place).status_code == 401


def test_an_account_without_ranges_keeps_the_mark_it_had_before_there_were_any() -> None:
    user = UserFactory()
    plain = user.mac
    user.put_marked(networks="192.0.2.0/24")
    assert user.mac != plain
    user.put_marked(networks="")
    assert user.mac == plain
    assert User.objects.get(pk=user.pk).is_genuine
