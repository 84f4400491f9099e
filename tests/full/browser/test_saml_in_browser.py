"""Single sign-on with pysaml2's identity provider, in a real browser: groups that change between log-ins."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session

from accounts.access import tokens
from accounts.models import Identity, LiveSession, User
from accounts.providers import GroupRole
from tests.full.browser import test_pages_in_browser as pages
from tests.full.browser.test_pages_in_browser import VIOLATIONS, browser, obstacles
from tests.full.harness.answers import answers_ended
from tests.full.harness.saml.provider import RealProvider, needs_xmlsec1, real_provider

__all__ = ["browser"]  # a fixture

pytestmark = [*pages.pytestmark, needs_xmlsec1, pytest.mark.one_database]
MAPPING = (GroupRole("ops", "operator", "env:staging"), GroupRole("approvers", "approver", "*"))


@pytest.fixture
def provider(live_server: Any, settings: Any, tmp_path: Path) -> Iterator[RealProvider]:
    """The provider is at 127.0.0.1 and Setpoint at localhost: two sites, between which no Lax cookie is sent."""
    assert "//localhost" in live_server.url
    settings.BASE_URL = live_server.url
    with real_provider(tmp_path) as provider:
        settings.SETPOINT_SAML = (provider.settings(*MAPPING),)
        provider.people = {"ada": {"mail": ["ada@example.com"], "givenName": ["Ada"], "groups": ["ops", "staff"]}}
        yield provider


@pytest.fixture
def page(browser: Any, live_server: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.add_init_script(VIOLATIONS)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if "policy:" in message.text else None)
    with answers_ended():
        yield page
        context.close()
    assert complaints == []


def start(page: Any, live_server: Any, path: str = "/login/") -> None:
    page.goto(live_server.url + path)
    assert obstacles(page) == []
    page.click("text=Continue with Example Corp")


def log_in_there(page: Any, login: str = "ada") -> None:
    page.fill("input[name=login]", login)
    page.click("button:has-text('Sign-in')")


def roles() -> set[tuple[str, str]]:
    return set(User.objects.get().grants)


def metadata(live_server: Any) -> str:
    return f"{live_server.url}/login/saml/corp/metadata/"


@pytest.mark.parametrize("signs_response", [False, True], ids=["assertion signed", "response signed, too"])
def test_groups_give_and_take_roles_from_log_in_to_log_in(
    page: Any, live_server: Any, provider: RealProvider, signs_response: bool
) -> None:
    provider.start(metadata(live_server), signs_response=signs_response)
    start(page, live_server, "/login/?next=/plans/")
    log_in_there(page)
    page.wait_for_url(f"{live_server.url}/plans/")
    assert (User.objects.get().email, User.objects.get().first_name) == ("ada@example.com", "Ada")
    assert Identity.objects.get().issuer == provider.entity
    assert roles() == {("operator", "env:staging")}
    token, _ = tokens.issue(user=User.objects.get(), name="ci", scopes=["read"], days=300, by=User.objects.get())
    page.locator("form[action='/logout/']").first.evaluate("(form) => form.requestSubmit()")  # it is in a closed menu
    page.wait_for_selector("text=Continue with Example Corp")

    provider.people["ada"]["groups"] = ["approvers"]
    provider.save()
    start(page, live_server)  # the provider knows this browser still
    page.wait_for_url(f"{live_server.url}/")
    assert roles() == {("approver", "*")}
    assert User.objects.count() == 1, "the persistent name is the same"

    provider.people["ada"]["groups"] = ["staff"]
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

    del provider.people["ada"]["groups"]
    provider.save()
    start(page, live_server)
    page.wait_for_selector("text=attribute groups")


def test_a_recent_log_in_is_asked_for_there_though_the_provider_knows_the_browser(
    page: Any, live_server: Any, provider: RealProvider, settings: Any
) -> None:
    settings.SETPOINT_SAML = tuple(replace(row, trusts_authn_instant=True) for row in settings.SETPOINT_SAML)
    provider.start(metadata(live_server))
    start(page, live_server)
    log_in_there(page)
    page.wait_for_url(f"{live_server.url}/")
    page.goto(f"{live_server.url}/account/confirm/?next=/plans/")
    assert obstacles(page) == []
    page.click("text=Log in again with Example Corp")
    log_in_there(page)  # it is asked for, and not remembered
    page.wait_for_url(f"{live_server.url}/plans/")
    session = LiveSession.objects.latest("started_at")
    assert session.user.email == "ada@example.com"
    proved = Session.objects.get(pk=session.key).get_decoded()["accounts.proved_at"]
    assert 0 <= time.time() - proved < 60


def test_a_log_in_that_is_cancelled_says_so_and_begins_again(
    page: Any, live_server: Any, provider: RealProvider
) -> None:
    provider.start(metadata(live_server))
    start(page, live_server)
    page.click("button:has-text('Cancel')")
    page.wait_for_selector("text=did not let you in")
    assert page.url.startswith(live_server.url)
    assert not User.objects.exists()
    page.click("text=Continue with Example Corp")
    log_in_there(page)
    page.wait_for_url(f"{live_server.url}/")
    assert roles() == {("operator", "env:staging")}


def test_a_provider_that_signs_by_sha1_is_refused_with_what_to_change(
    page: Any, live_server: Any, provider: RealProvider
) -> None:
    provider.start(metadata(live_server), signs_sha1=True)
    start(page, live_server)
    log_in_there(page)
    page.wait_for_selector("text=signs with 'rsa-sha1'")
    page.wait_for_selector("text=SHA-256 or better")
    assert not User.objects.exists()


def test_the_page_between_is_accessible_and_its_button_does_it(
    page: Any, live_server: Any, provider: RealProvider
) -> None:
    """Its script is held back, which would leave it at once."""
    page.route("**/js/saml*", lambda route: route.abort())
    provider.start(metadata(live_server))
    start(page, live_server)
    log_in_there(page)
    page.wait_for_selector("text=Back from Example Corp")
    assert obstacles(page) == []
    page.click("button:has-text('Continue')")
    page.wait_for_url(f"{live_server.url}/")
    assert roles() == {("operator", "env:staging")}


def test_without_scripts_the_button_of_the_page_between_does_it(
    browser: Any, live_server: Any, provider: RealProvider
) -> None:
    provider.start(metadata(live_server))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(30_000)
    with answers_ended():
        page.goto(f"{live_server.url}/login/")
        page.click("text=Continue with Example Corp")
        log_in_there(page)
        page.click("[type=submit]")  # pysaml2's own page
        page.wait_for_selector("text=Back from Example Corp")
        page.click("text=Continue")
        page.wait_for_url(f"{live_server.url}/")
        context.close()
    assert roles() == {("operator", "env:staging")}
