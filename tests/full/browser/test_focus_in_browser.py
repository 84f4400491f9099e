"""Focus after a press: on the message about it, on the refused field, or where it was."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jobs.models import Rollout
from tests.full.browser.test_pages_in_browser import Visit, browser, pytestmark, visit, world
from tests.jobs.conftest import World

__all__ = ["browser", "pytestmark", "visit", "world"]  # fixtures, and what this file needs to run at all

TOLD = """() => {
  const e = document.activeElement;
  return e.matches("main .flash") ? [e.getAttribute("role"), e.innerText.trim()] : ["", e.outerHTML.slice(0, 120)];
}"""


def message(page: Any) -> str:
    """Return the focused message, which a screen reader reads then."""
    page.wait_for_load_state()
    role, text = page.evaluate(TOLD)
    assert role in ("status", "alert"), f"the focus is on {text}"
    return str(text)


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.tagName"))


def push(page: Any, name: str) -> None:
    """Press a button of that name by keyboard, wherever the page is scrolled to."""
    page.get_by_role("button", name=re.compile(rf"^\s*{name}")).locator("visible=true").first.focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")


def test_after_each_act_the_focus_is_at_what_is_said_about_it(world: World, visit: Visit, live_server: Any) -> None:
    plan = world.plan(canary=1, batch="1", order="name")
    page = visit(world.operator, f"/plans/{plan}/")
    page.fill("textarea[name=comment]", "Less swapping.")
    push(page, "Request approval")
    assert message(page).startswith("Approval of P-1 is requested.")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null"), "the way goes on from there"

    theirs = visit(world.approver, f"/plans/{plan}/#verdict")
    theirs.check("input[value=approve]")
    push(theirs, "Approve P-1")
    assert message(theirs).startswith("You approved P-1")

    page.reload()
    assert focused(page) == "BODY", "said once"
    push(page, "Start P-1")
    page.wait_for_url(re.compile(r"/rollouts/R-1/$"))
    assert message(page) == "You started R-1, which carries P-1 out."
    for _ in range(2):  # updates leave it there
        with page.expect_response(lambda r: r.url.endswith("/live/")):
            pass
    assert message(page) == "You started R-1, which carries P-1 out."

    rollout = Rollout.objects.get()
    world.until(rollout, "succeeded")
    page.reload()
    push(page, "Pause")
    assert message(page).startswith("You paused R-1.")
    push(page, "Resume")
    assert message(page) == "You resumed R-1."
    page.goto(f"{live_server.url}/rollouts/R-1/steps/{rollout.steps.get(node_name='n5').pk}/")
    push(page, "Skip")
    assert message(page) == "You skipped n5 of R-1: it stays as it is."

    page.goto(f"{live_server.url}/freezes/")
    page.fill("#id_reason", "Launch")
    page.select_option("#id_cluster", label="atlas")
    push(page, "Stop new starts")
    assert message(page).startswith("atlas is frozen")
    push(page, "Lift")
    assert message(page) == "The freeze of atlas is lifted."


def test_a_refused_form_puts_the_focus_into_the_first_field_that_is_wrong(world: World, visit: Visit) -> None:
    page = visit(world.operator, "/plans/new/")
    page.fill("#id_batch", "a lot")
    push(page, "Create plan")
    assert focused(page) == "id_pool"
    assert page.get_attribute("#id_pool", "aria-describedby"), "and its reason is read with it"


def test_a_list_that_is_narrowed_or_sorted_keeps_the_focus_where_it_was(world: World, visit: Visit) -> None:
    world.started()
    page = visit(world.operator, "/plans/")
    for act, control in (
        (lambda: page.focus("#f-cluster") or page.select_option("#f-cluster", "atlas"), "f-cluster"),
        (lambda: page.press("#sort-nodes", "Enter"), "sort-nodes"),
        (lambda: page.press("#f-q", "Enter"), "f-q"),
        (lambda: page.click("#theme"), "theme"),
    ):
        with page.expect_navigation():
            act()
        page.wait_for_load_state()
        assert focused(page) == control
    page.goto(page.url)
    assert focused(page) == "BODY", "only where the page came back to its reader"


@pytest.mark.parametrize("scripted", [True, False])
def test_a_phone_sorts_a_list_without_heads(world: World, visit: Visit, scripted: bool) -> None:
    for _ in range(2):
        world.plan()
    page = visit(world.operator, "/plans/?status=draft", width=390, java_script_enabled=scripted)
    assert not page.locator(".tb thead").is_visible()
    sort = page.locator("#sort")
    assert sort.is_visible()
    with page.expect_navigation():
        sort.select_option(label="Plan")
        if not scripted:
            page.click("button:has-text('Sort')")
    assert page.url.endswith("/plans/?status=draft&ordering=-number")
    assert page.locator(".tb tbody th").all_inner_texts() == ["P-2", "P-1"]
    with page.expect_navigation():
        page.click("#sort-turn")
    assert page.url.endswith("/plans/?status=draft&ordering=number")
    assert page.locator(".tb tbody th").all_inner_texts() == ["P-1", "P-2"]
    if scripted:
        assert focused(page) == "sort-turn"
        page.set_viewport_size({"width": 1440, "height": 900})
        assert not sort.is_visible(), "there the heads do it"


def test_at_its_end_a_page_stops_saying_that_it_is_live(world: World, visit: Visit) -> None:
    rollout = world.started()
    world.slice(rollout)
    page = visit(world.operator, f"/rollouts/{rollout}/")
    assert page.inner_text("#seen") == "Live"
    assert page.title().startswith("R-1 running")
    assert page.inner_text("#running") == "1 live"

    world.run(rollout)
    page.wait_for_selector("#seen:has-text('Final')")

    assert str(page.text_content("#seen")).split() == ["Final:", "R-1", "succeeded"], "the end is read out"
    assert page.get_attribute("#seen", "role") == "status"
    assert page.title().startswith("R-1 succeeded")
    assert page.inner_text("#running") == ""
    assert page.locator(".waiting").count() == 0
