"""Break-glass in a real browser: a recent log-in and the name of the plan start it, and two other people review it."""

from __future__ import annotations

from typing import Any

from accounts.models import User
from jobs import tasks
from jobs.approvals import reviews
from jobs.models import Rollout
from tests.factories import PASSWORD, UserFactory
from tests.full.browser.test_pages_in_browser import WIDTHS, Visit, browser, obstacles, pytestmark, visit, world
from tests.jobs.conftest import World

__all__ = ["browser", "pytestmark", "visit", "world"]  # fixtures, and what this file needs to run at all

REASON = "Streams of customers stall, and no approver answers."


def person(*roles: str) -> User:
    user = UserFactory(roles=list(roles))
    user.set_password(PASSWORD)
    user.save(update_fields=["password"])
    return user


def submit(page: Any, name: str) -> None:
    page.locator("#glass-reason").fill(REASON)
    page.locator("#glass-confirmation").fill(name)
    page.get_by_role("button", name="by break-glass").click()
    page.wait_for_load_state()


def test_a_plan_is_started_without_approval_and_reviewed_by_two_others(
    world: World, visit: Visit, clock: Any, settings: Any, monkeypatch: Any
) -> None:
    settings.SETPOINT_BREAK_GLASS_CLASS = "drain"
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    plan = reviews.request(world.plan(), by=world.operator)
    assert visit(world.operator, f"/plans/{plan}/").locator("#glass").count() == 0, "it takes a role of its own"

    breaker = person("operator", "break-glass")
    page = visit(breaker, f"/plans/{plan}/")
    clock.forward(hours=1)
    world.look()
    page.reload()
    assert obstacles(page) == []
    submit(page, str(plan))
    assert not Rollout.objects.exists(), "its log-in is an hour old"
    page.goto(page.url)
    page.locator("#glass").get_by_role("link", name="Confirm that it is you").click()
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_load_state()

    submit(page, "P-999")
    assert not Rollout.objects.exists()
    wrong = page.locator("#glass-confirmation")
    assert page.locator(f"#{wrong.get_attribute('aria-describedby')}").is_visible()
    assert page.locator("#glass-reason").input_value() == REASON
    assert obstacles(page) == []
    submit(page, str(plan))
    rollout = Rollout.objects.get()
    assert (page.url.endswith(f"/rollouts/{rollout}/"), rollout.glass.person) == (True, breaker)
    assert page.locator("#glass textarea").count() == 0, "its starter does not review it"

    for reviewer, width, missing in ((world.approver, WIDTHS["desktop"], 1), (world.second, WIDTHS["phone"], 0)):
        theirs = visit(reviewer, "/", width=width, theme="dark")
        assert obstacles(theirs) == []
        theirs.get_by_role("link", name=f"Review {rollout}").first.click()
        assert obstacles(theirs) == []
        theirs.locator('#glass input[name="verdict"][value="ok"]').check()
        theirs.locator("#glass-text").fill("The gateway's graphs show it.")
        theirs.get_by_role("button", name=f"Submit review of {rollout}").click()
        theirs.wait_for_load_state()
        assert Rollout.objects.get().glass.missing == missing
    assert theirs.locator("#glass").get_attribute("data-glass") == "reviewed"
    page.goto(page.url.partition("/rollouts/")[0])
    assert page.locator("[data-glass]").count() == 0
