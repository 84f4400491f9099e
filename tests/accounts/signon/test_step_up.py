"""A recent log-in at a provider: asked for there, and believed by the time that the provider tells."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client, RequestFactory

from accounts.access import freshness
from accounts.models import User
from common.clock import now
from tests.accounts.signon.conftest import LogIn
from tests.accounts.signon.issuer import Issuer

pytestmark = pytest.mark.django_db


def proved_at(client: Client) -> Any:
    request = RequestFactory().get("/")
    request.session = client.session
    return freshness.proved_at(request)


def parameters(location: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


@pytest.mark.parametrize("ago", [0, 40, 7200])
def test_a_log_in_counts_from_when_the_person_logged_in_there(log_in: LogIn, ago: int) -> None:
    client, then = Client(), int(now().timestamp()) - ago
    log_in(client, auth_time=then)
    assert proved_at(client).timestamp() == then


def test_the_person_is_told_where_a_provider_makes_it_impossible(log_in: LogIn, settings: Any) -> None:
    client = Client()
    for asked_for, is_told in (("reboot", True), ("", False)):
        settings.SETPOINT_STEP_UP = asked_for
        log_in(client)
        assert ("auth_time" in client.get("/account/").content.decode()) is is_told
        client.logout()


@pytest.mark.parametrize("auth_time", [None, True, "1764000000", [], float("inf"), 1e300, -1e300])
def test_a_provider_that_does_not_tell_the_time_proves_no_recent_log_in(log_in: LogIn, auth_time: Any) -> None:
    client = Client()
    assert log_in(client, auth_time=auth_time).status_code in (302, 403)  # JSON has no infinity
    assert proved_at(client) is None


def test_the_time_is_never_later_than_now(log_in: LogIn) -> None:
    client = Client()
    log_in(client, auth_time=int((now() + timedelta(days=1)).timestamp()))
    assert proved_at(client) <= now()


def test_an_ordinary_log_in_asks_for_no_new_one_there_and_a_confirmation_does(log_in: LogIn, issuer: Issuer) -> None:
    client = Client()
    ordinary = parameters(client.get("/login/with/corp/")["Location"])
    assert {"prompt", "max_age"}.isdisjoint(ordinary)

    log_in(client, auth_time=int(now().timestamp()) - 7200)
    page = client.get("/account/confirm/?next=/plans/").content.decode()
    assert "/login/with/corp/?again=1&amp;next=%2Fplans%2F" in page
    assert 'type="password"' not in page
    begun = client.get("/login/with/corp/?again=1&next=/plans/")
    assert (parameters(begun["Location"])["prompt"], parameters(begun["Location"])["max_age"]) == ("login", "0")

    issuer.claims["auth_time"] = int(now().timestamp())
    back = client.get(f"/login/with/corp/back/?{issuer.authorize(begun['Location'])}")
    assert (back.status_code, back["Location"]) == (302, "/plans/")
    assert now() - proved_at(client) < timedelta(minutes=1)
    assert User.objects.count() == 1


def test_a_provider_that_remembers_the_person_all_the_same_is_not_believed(log_in: LogIn, issuer: Issuer) -> None:
    """One that ignores `prompt`, or a browser that took it out of the address."""
    client, then = Client(), int(now().timestamp()) - 7200
    log_in(client, auth_time=then)
    begun = client.get("/login/with/corp/?again=1")
    client.get(f"/login/with/corp/back/?{issuer.authorize(begun['Location'])}")
    assert proved_at(client).timestamp() == then


def test_another_person_who_logs_in_there_confirms_nothing_for_the_first(log_in: LogIn, issuer: Issuer) -> None:
    client, recent = Client(), int(now().timestamp())
    log_in(client)
    ada = User.objects.get()
    begun = client.get("/login/with/corp/?again=1")
    issuer.claims |= {"sub": "eve-1", "email": "eve@example.com", "auth_time": recent}
    client.get(f"/login/with/corp/back/?{issuer.authorize(begun['Location'])}")
    assert client.get("/api/v1/me").json()["email"] == "eve@example.com"
    assert proved_at(client).timestamp() == recent
    assert ada.email != "eve@example.com"


def test_a_password_confirms_nothing_for_a_person_of_a_provider(log_in: LogIn) -> None:
    client = Client()
    log_in(client)
    assert client.post("/account/confirm/", {"password": "a guess"}).status_code == 422
    assert proved_at(client) is None
