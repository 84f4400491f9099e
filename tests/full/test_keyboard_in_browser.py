"""Pages without a mouse, and live pages that leave alone what a person is doing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.full.test_pages_in_browser import (  # noqa: F401
    AXE,
    CHROMIUM,
    VENDORED,
    Visit,
    browser,
    obstacles,
    visit,
    world,
)
from tests.jobs.conftest import World

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium: apt-get install chromium"),
    pytest.mark.skipif(not (AXE.exists() and VENDORED.exists()), reason="no axe-core or icons: make vendor"),
]

FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e), drawn = (s) =>
    (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none";
  return {
    text: (e.innerText || e.value || e.getAttribute("aria-label") || "").trim(), id: e.id, name: e.name || "",
    value: e.value || "", tag: e.tagName, seen: e === document.body || drawn(s), box: e.getBoundingClientRect().width,
  };
}"""
MOST_TABS = 120


def tab_to(page: Any, text: str = "", **wanted: str) -> None:
    """Tab, and nothing but Tab, until what says so (or has that id or name) has the focus; each stop on the way shows
    that it has it."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        now = page.evaluate(FOCUSED)
        assert now["seen"], f"the focus does not show on {now}"
        is_named = all(now[name] == value for name, value in wanted.items())
        if is_named and (not text or re.search(text, now["text"])):
            return
    raise AssertionError(f"no way by Tab to {text or wanted} on {page.url}")


def press(page: Any, key: str, url: str | re.Pattern[str]) -> None:
    page.keyboard.press(key)
    page.wait_for_url(url)
    page.wait_for_load_state()


def two_updates(page: Any) -> None:
    for _ in range(2):
        with page.expect_response(lambda r: r.url.endswith("/live/")):
            pass
    page.wait_for_timeout(300)


def test_a_live_update_takes_neither_focus_nor_place_nor_words(world: World, visit: Visit) -> None:  # noqa: F811
    rollout = world.started(canary=1, batch="1")
    for _ in range(4):
        world.slice(rollout)
    page = visit(world.operator, f"/rollouts/R-{rollout.number}/")
    page.set_viewport_size({"width": 1000, "height": 420})
    tab_to(page, "^Pause$")
    page.mouse.wheel(0, 180)
    page.wait_for_timeout(200)
    before = page.evaluate("[document.activeElement.innerText.trim(), scrollY]")
    assert before[1] > 0
    said = page.inner_text("#rollout")

    for _ in range(3):
        world.tick(3)
        world.slice(rollout)
    two_updates(page)

    assert page.inner_text("#rollout") != said, "or nothing was updated"
    assert page.evaluate("[document.activeElement.innerText.trim(), scrollY]") == before


def test_the_search_is_reached_by_a_slash_and_walked_by_arrows(world: World, visit: Visit) -> None:  # noqa: F811
    page = visit(world.operator, "/plans/")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("n")
    page.wait_for_selector("#hits a:has-text('n3')")
    assert not obstacles(page)
    page.keyboard.type("2")
    page.wait_for_selector("#hits a:has-text('n1')", state="detached")
    page.keyboard.press("ArrowDown")
    assert "n2" in page.evaluate(FOCUSED)["text"]
    page.keyboard.press("Escape")
    assert page.is_hidden("#hits")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("/")
    assert page.input_value("#q") == "n2/", "a slash that is typed is a slash"
    page.keyboard.press("Backspace")
    page.wait_for_selector("#hits a:has-text('n2')")
    page.keyboard.press("ArrowDown")
    press(page, "Enter", re.compile(r"/nodes/\d+/$"))


def test_without_javascript_the_search_has_a_page(world: World, visit: Visit) -> None:  # noqa: F811
    page = visit(world.operator, "/plans/", java_script_enabled=False)
    page.fill("#q", "atlas")
    page.press("#q", "Enter")
    page.wait_for_url(re.compile(r"/search/\?q=atlas$"))
    assert page.inner_text("main .hits a >> nth=0").startswith("atlas")
