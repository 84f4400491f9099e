"""A session that ends while its user writes a long profile, in a real browser: nothing is lost, nothing sent."""

from __future__ import annotations

from typing import Any

from django.contrib.sessions.models import Session

from profiles.models import Profile
from tests.factories import PASSWORD
from tests.full.browser.test_pages_in_browser import Visit, browser, obstacles, pytestmark, visit, world
from tests.jobs.conftest import World

__all__ = ["browser", "pytestmark", "visit", "world"]  # fixtures, and what this file needs to run at all

LONG = "# " + "a long thought, " * 500 + "\nsettings:\n  vm.overcommit_ratio: 50\n  vm.swappiness: 10\n"


def kept(page: Any) -> str:
    return str(page.locator("input[name=source]").get_attribute("value")).replace("\r", "").strip()


def test_a_long_form_survives_a_session_that_ended(world: World, visit: Visit) -> None:
    page = visit(world.operator, "/profiles/new/?view=yaml")
    page.fill("#id_name", "mine")
    Session.objects.all().delete()
    page.fill("#id_source", LONG)
    page.wait_for_selector("[data-ended]:visible")
    assert page.input_value("#id_source").strip() == LONG.strip(), "the live check took nothing away"
    assert obstacles(page) == []

    page.click("button[value=save]")
    page.wait_for_selector("#id_email")
    assert obstacles(page) == []
    page.fill("#id_email", str(world.operator))
    page.fill("#id_password", PASSWORD)
    page.click("button:has-text('Log in')")
    page.wait_for_selector("button:has-text('Send it')")
    assert obstacles(page) == []
    assert not Profile.objects.filter(name="mine").exists()
    page.click("button:has-text('Send it')")
    page.wait_for_selector("h1:has-text('mine')")
    assert Profile.objects.get(name="mine").draft.replace("\r", "").strip() == LONG.strip()


def test_after_a_log_in_in_another_tab_the_form_is_not_lost(world: World, visit: Visit) -> None:
    page = visit(world.operator, "/profiles/new/?view=yaml")
    page.fill("#id_name", "mine")
    Session.objects.all().delete()
    page.fill("#id_source", LONG)
    with page.context.expect_page() as opened:
        page.click("[data-ended] a")
    other = opened.value
    other.fill("#id_email", str(world.operator))
    other.fill("#id_password", PASSWORD)
    other.click("button:has-text('Log in')")
    other.wait_for_selector("nav")
    other.close()

    page.click("button[value=save]")
    page.wait_for_selector("button:has-text('Send it')")
    assert not Profile.objects.filter(name="mine").exists()
    assert kept(page) == LONG.strip()
    page.click("button:has-text('Send it')")
    page.wait_for_selector("h1:has-text('mine')")
    assert Profile.objects.filter(name="mine").exists()
