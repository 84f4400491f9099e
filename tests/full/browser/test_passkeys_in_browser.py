"""Passkeys in a real browser with a virtual authenticator: registered, used in all three places, removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from accounts.models import Passkey
from jobs.approvals import reviews
from jobs.models import Approval
from tests.factories import PASSWORD, UserFactory
from tests.full.browser import test_pages_in_browser as pages
from tests.full.browser.test_pages_in_browser import WIDTHS, browser, obstacles, world
from tests.full.harness.answers import answers_ended
from tests.jobs.conftest import World
from tools.page_wait import until

__all__ = ["browser", "world"]  # fixtures

pytestmark = [*pages.pytestmark, pytest.mark.one_database]
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


class Device:
    """A browser with an authenticator of its own; complaints of the page's policy and scripts are kept."""

    def __init__(self, context: Any) -> None:
        context.add_init_script(pages.VIOLATIONS)
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda line: self.complaints.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.cdp = context.new_cdp_session(self.page)
        self.cdp.send("WebAuthn.enable")
        self.authenticator = self.cdp.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
        self.id = self.authenticator["authenticatorId"]

    def is_of(self, person: bool) -> None:
        """Say whether the fingerprint on it is the owner's."""
        self.cdp.send("WebAuthn.setUserVerified", {"authenticatorId": self.id, "isUserVerified": person})

    def credentials(self) -> list[dict[str, Any]]:
        stored = self.cdp.send("WebAuthn.getCredentials", {"authenticatorId": self.id})
        return list(stored["credentials"])

    def unexpected(self) -> list[str]:
        """Complaints but those of the browser about a status that an answer of ours has on purpose."""
        return [text for text in self.complaints if "the server responded with a status of 40" not in text]


@pytest.fixture(params=[(WIDTHS["desktop"], "light"), (WIDTHS["phone"], "dark")], ids=str)
def device(browser: Any, live_server: Any, settings: Any, request: Any) -> Iterator[Device]:
    settings.BASE_URL = live_server.url
    width, theme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    with answers_ended():
        device = Device(context)
        yield device
        assert device.unexpected() == []
        context.close()


def enter_password(page: Any, url: str, email: str) -> None:
    page.goto(url)
    page.fill("input[name=email]", email)
    page.fill("input[name=password]", PASSWORD)
    page.click("button:text-is('Log in')")


def test_a_passkey_from_registration_to_removal(device: Device, live_server: Any) -> None:
    user, page, home = UserFactory(email="ada@example.com", roles=["viewer"]), device.page, live_server.url
    account, own = f"{home}/account/", f"{home}/account/second-factor/"
    enter_password(page, f"{home}/login/?next=/account/second-factor/", user.email)
    page.wait_for_url(own)
    assert obstacles(page) == []
    page.fill("#id_name", "laptop")
    page.fill("#passkey-password", PASSWORD)
    page.click("button:has-text('Register a passkey')")
    page.wait_for_selector(".pk:has-text('laptop')")
    assert obstacles(page) == []
    assert [(each["isResidentCredential"], each["rpId"]) for each in device.credentials()] == [(True, "localhost")]
    page.fill("#passkey-password", PASSWORD)
    page.click("button:has-text('Register a passkey')")
    page.wait_for_selector("[data-passkey-says]:has-text('already')")
    assert Passkey.objects.count() == 1

    page.context.clear_cookies()
    page.goto(f"{home}/login/?next=/account/")
    assert obstacles(page) == []
    page.click("button:has-text('Log in with a passkey')")
    page.wait_for_url(account)

    page.context.clear_cookies()
    enter_password(page, f"{home}/login/?next=/account/", user.email)
    page.wait_for_selector("h1:has-text('passkey')")
    assert obstacles(page) == []
    page.click("button:has-text('Use a passkey')")
    page.wait_for_url(account)

    page.goto(f"{home}/account/confirm/?next=/account/second-factor/")
    assert obstacles(page) == []
    device.is_of(False)
    page.click("button:has-text('Confirm with a passkey')")
    page.wait_for_selector("[data-passkey-says]:has-text('No passkey was used')")
    assert until(page, "document.getAnimations().length === 0")  # the button is enabled again, and fades in
    assert obstacles(page) == []
    device.is_of(True)
    page.click("button:has-text('Confirm with a passkey')")
    page.wait_for_url(own)
    assert Passkey.objects.get().sign_count > 0

    page.click(".pk button:has-text('Remove')")
    page.wait_for_selector("text=is removed")
    page.context.clear_cookies()
    page.goto(f"{home}/login/")
    page.click("button:has-text('Log in with a passkey')")
    page.wait_for_selector("[role=alert]:has-text('was not accepted')")
    assert obstacles(page) == []
    enter_password(page, f"{home}/login/?next=/account/", user.email)
    page.wait_for_url(account)


def test_an_approval_takes_a_passkey_once_the_log_in_is_old(
    device: Device, live_server: Any, world: World, settings: Any, clock: Any
) -> None:
    settings.SETPOINT_STEP_UP = "drain"
    plan = reviews.request(world.plan(world.revision({"cmdline.iommu": "pt"})), by=world.operator)
    approver, page, home = world.approver, device.page, live_server.url
    approver.set_password(PASSWORD)
    approver.save(update_fields=["password"])
    enter_password(page, f"{home}/login/?next=/account/second-factor/", approver.email)
    page.fill("#passkey-password", PASSWORD)
    page.click("button:has-text('Register a passkey')")
    page.wait_for_selector(".pk")
    clock.forward(3600)
    page.goto(f"{home}/plans/P-{plan.number}/")
    page.click("a[href*='/account/confirm/']")
    page.click("button:has-text('Confirm with a passkey')")
    page.wait_for_url(f"{home}/plans/P-{plan.number}/**")
    assert page.locator("a[href*='/account/confirm/']").count() == 0
    page.locator("[name=verdict][value=approve]").check()
    page.click("[data-verdict]")
    page.wait_for_load_state()
    assert Approval.objects.filter(plan=plan, person=approver).count() == 1


def test_without_scripts_or_webauthn_the_page_says_so_and_the_password_works(
    browser: Any, live_server: Any, settings: Any
) -> None:
    settings.BASE_URL = live_server.url
    user = UserFactory(email="ada@example.com", roles=["viewer"])
    with answers_ended():
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        enter_password(page, f"{live_server.url}/login/?next=/account/second-factor/", user.email)
        page.wait_for_selector("noscript p:visible")  # selectors by text pass over <noscript>
        assert "Passkeys need JavaScript" in page.locator("noscript").inner_text()
        assert not page.locator("button:has-text('Register a passkey')").is_visible()
        context.close()
        context = browser.new_context()
        context.add_init_script("delete window.PublicKeyCredential")
        page = context.new_page()
        page.goto(f"{live_server.url}/login/")
        page.wait_for_selector("[data-passkey-none]:visible")
        assert not page.locator("button:has-text('Log in with a passkey')").is_visible()
        context.close()
