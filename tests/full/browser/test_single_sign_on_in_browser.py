"""Single sign-on with a certified provider, in a real browser: groups that change between log-ins, and their end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session

from accounts.access import tokens
from accounts.models import LiveSession, User
from accounts.providers import GroupRole
from tests.full.browser import test_pages_in_browser as pages
from tests.full.browser.test_pages_in_browser import browser, obstacles
from tests.full.harness.answers import answers_ended
from tests.full.harness.oidc_provider import PACKAGE, RealProvider, real_provider

__all__ = ["browser"]  # a fixture

pytestmark = [
    *pages.pytestmark,
    pytest.mark.skipif(not PACKAGE.exists(), reason="no oidc-provider: make vendor"),
    pytest.mark.one_database,
]
MAPPING = (GroupRole("ops", "operator", "env:staging"), GroupRole("approvers", "approver", "*"))


@pytest.fixture
def provider(live_server: Any, settings: Any, tmp_path: Path) -> Iterator[RealProvider]:
    settings.BASE_URL = live_server.url
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    with real_provider(tmp_path, f"{live_server.url}/login/with/corp/back/") as provider:
        settings.SETPOINT_OIDC = (provider.settings(*MAPPING),)
        yield provider


@pytest.fixture
def page(browser: Any, live_server: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(30_000)
    with answers_ended():
        yield page
        context.close()


def start(page: Any, live_server: Any, path: str = "/login/") -> None:
    page.goto(live_server.url + path)
    assert obstacles(page) == []
    page.click("text=Continue with Example Corp")


def log_in_there(page: Any, login: str) -> None:
    page.fill("input[name=login]", login)
    page.fill("input[name=password]", "any")
    page.click("button:has-text('Sign-in')")
    page.click("button:has-text('Continue')")


def roles() -> set[tuple[str, str]]:
    return set(User.objects.get().grants)


@pytest.mark.parametrize("in_token", [True, False], ids=["claims in the token", "claims in the user information"])
def test_groups_give_and_take_roles_from_log_in_to_log_in(
    page: Any, live_server: Any, provider: RealProvider, in_token: bool
) -> None:
    ada = {"email": "ada@example.com", "email_verified": True, "given_name": "Ada", "groups": ["ops", "staff"]}
    provider.people = {"ada": ada}
    provider.start(in_token=in_token)

    start(page, live_server, "/login/?next=/plans/")
    log_in_there(page, "ada")
    page.wait_for_url(f"{live_server.url}/plans/")
    assert (User.objects.get().email, User.objects.get().first_name) == ("ada@example.com", "Ada")
    assert roles() == {("operator", "env:staging")}
    page.goto(f"{live_server.url}/account/")
    assert obstacles(page) == []
    assert page.locator("input[type=password]").count() == 0
    token, _ = tokens.issue(user=User.objects.get(), name="ci", scopes=["read"], days=300, by=User.objects.get())
    page.locator("form[action='/logout/']").first.evaluate("(form) => form.requestSubmit()")  # it is in a closed menu
    page.wait_for_selector("text=Continue with Example Corp")

    ada["groups"] = ["approvers"]
    provider.save()
    start(page, live_server)  # the provider knows this browser still
    page.wait_for_url(f"{live_server.url}/")
    assert roles() == {("approver", "*")}
    assert User.objects.count() == 1

    ada["groups"] = ["staff"]
    provider.save()
    page.context.clear_cookies(name="sessionid")
    start(page, live_server)
    page.wait_for_selector("[role=alert]")
    assert obstacles(page) == []
    assert page.url.startswith(live_server.url)
    assert roles() == set()
    assert not LiveSession.objects.exists()
    token.refresh_from_db()
    assert not token.is_live


def test_a_recent_log_in_is_asked_for_there_though_the_provider_knows_the_browser(
    page: Any, live_server: Any, provider: RealProvider
) -> None:
    provider.people = {"ada": {"email": "ada@example.com", "email_verified": True, "groups": ["ops"]}}
    provider.start(in_token=True)
    start(page, live_server)
    log_in_there(page, "ada")
    page.wait_for_url(f"{live_server.url}/")
    page.goto(f"{live_server.url}/account/confirm/?next=/plans/")
    assert obstacles(page) == []
    page.click("text=Log in again with Example Corp")
    page.fill("input[name=login]", "ada")  # it is asked for, and not remembered
    page.fill("input[name=password]", "any")
    page.click("button:has-text('Sign-in')")
    page.wait_for_url(f"{live_server.url}/plans/")
    session = LiveSession.objects.latest("started_at")
    assert session.user.email == "ada@example.com"
    proved = Session.objects.get(pk=session.key).get_decoded()["accounts.proved_at"]
    assert 0 <= time.time() - proved < 60


def test_a_log_in_that_is_cancelled_or_a_provider_that_is_down_says_so(
    page: Any, live_server: Any, provider: RealProvider
) -> None:
    provider.people = {"ada": {"email": "ada@example.com", "email_verified": True, "groups": ["ops"]}}
    provider.start(in_token=True)
    start(page, live_server)
    page.click("a:has-text('Cancel')")
    page.wait_for_selector("[role=alert]")
    assert page.url.startswith(live_server.url)
    assert not User.objects.exists()

    provider.stop()
    page.click("text=Continue with Example Corp")
    page.wait_for_selector("[role=alert]")
    assert obstacles(page) == []
    provider.start(in_token=True)
    page.click("text=Continue with Example Corp")
    log_in_there(page, "ada")
    page.wait_for_url(f"{live_server.url}/")
    assert roles() == {("operator", "env:staging")}
