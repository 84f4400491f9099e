"""The whole way without a mouse, every stop seen, and live pages that leave alone what a person is doing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.approvals import reviews
from jobs.models import Plan, Rollout
from jobs.rollouts import freezes, rollout_actions
from tests.full.browser.test_pages_in_browser import (  # noqa: F401
    AXE,
    VENDORED,
    Visit,
    browser,
    obstacles,
    visit,
    world,
)
from tests.full.harness.browser import needs_browser
from tests.jobs.conftest import World

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.skipif(not (AXE.exists() and VENDORED.exists()), reason="no axe-core or icons: make vendor"),
]

RESTING = """() => {
  window.resting = new WeakMap();
  for (const e of document.querySelectorAll("*")) {
    const s = getComputedStyle(e);
    window.resting.set(e, [s.boxShadow, s.outlineStyle + s.outlineWidth]);
  }
}"""
"""How everything looks before the first Tab: a shadow that a thing always has is no sign of focus."""
FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e), box = e.getClientRects()[0] ?? new DOMRect();
  window.unreached?.delete(e);
  const [shadow, outline] = window.resting?.get(e) ?? ["none", "none"];
  const isOutlined = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0 && !/, 0\\)$/.test(s.outlineColor)
    && s.outlineStyle + s.outlineWidth !== outline;
  const isShadowed = s.boxShadow !== "none" && s.boxShadow !== shadow;
  const there = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  const isInView = box.width > 1 && box.height > 1 && !!there && (e.contains(there) || there.contains(e));
  return {
    text: (e.innerText || e.value || e.getAttribute("aria-label") || "").trim(), id: e.id, name: e.name || "",
    value: e.value || "", isNowhere: e === document.body, isDrawn: isOutlined || isShadowed, isInView,
    html: e.outerHTML.slice(0, 200),
  };
}"""
MOST_TABS = 200


def stops(page: Any) -> Iterator[dict[str, Any]]:
    """Tab, and nothing but Tab, from stop to stop; each shows that it has the focus."""
    page.emulate_media(reduced_motion="reduce")  # no scrolling or fading to wait for
    page.evaluate(RESTING)
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        now = page.evaluate(FOCUSED)
        assert now["isNowhere"] or (now["isDrawn"] and now["isInView"]), f"the focus does not show on {now}"
        yield now


def tab_to(page: Any, text: str = "", **wanted: str) -> None:
    """Tab until what says so (or has that id or name) has the focus."""
    for now in stops(page):
        is_named = all(now[name] == value for name, value in wanted.items())
        if is_named and (not text or re.search(text, now["text"])):
            return
    raise AssertionError(f"no way by Tab to {text or wanted} on {page.url}")


def press(page: Any, key: str, url: str | re.Pattern[str]) -> None:
    page.keyboard.press(key)
    page.wait_for_url(url)
    page.wait_for_load_state()


def test_from_plan_to_revert_without_a_mouse(world: World, visit: Visit) -> None:  # noqa: F811
    world.revision()

    # The operator makes a plan and asks for approval.
    page = visit(world.operator, "/plans/")
    tab_to(page, "New plan")
    press(page, "Enter", re.compile(r"/plans/new/$"))
    tab_to(page, id="id_pool")
    page.keyboard.press("ArrowDown")
    tab_to(page, id="id_revision")
    page.keyboard.press("ArrowDown")
    tab_to(page, "Create plan")
    press(page, "Enter", re.compile(r"/plans/P-1/$"))
    tab_to(page, name="comment")
    page.keyboard.type("Less swapping.")
    tab_to(page, "Request approval of P-1")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Needs review")

    # The approver finds it, reads it and says yes.
    theirs = visit(world.approver, "/")
    tab_to(theirs, "^Approvals")
    press(theirs, "Enter", re.compile(r"/approvals/$"))
    tab_to(theirs, "Review P-1")
    press(theirs, "Enter", re.compile(r"/plans/P-1/$"))
    tab_to(theirs, name="verdict")
    theirs.keyboard.press("Space")
    assert theirs.is_checked("input[value=approve]")
    tab_to(theirs, "Approve P-1")
    theirs.keyboard.press("Enter")
    theirs.wait_for_selector(".st:has-text('Approved')")

    # The operator starts it and follows it to its end.
    page.reload()
    page.wait_for_selector("button:has-text('Start P-1')")
    tab_to(page, "Start P-1")
    press(page, "Enter", re.compile(r"/rollouts/R-1/$"))
    rollout = Rollout.objects.get(plan=Plan.objects.get(number=1))
    world.run(rollout)
    page.wait_for_selector(".st.pill:has-text('Succeeded')")
    assert world.value("n1") == "10"

    # And puts everything back.
    tab_to(page, "Revert all")
    press(page, "Enter", re.compile(r"/rollouts/R-1/revert/$"))  # several nodes: it asks before it acts
    tab_to(page, "Revert all")
    press(page, "Enter", re.compile(r"/rollouts/R-1/$"))
    page.wait_for_selector(".st.pill:has-text('Reverting')")
    rollout.refresh_from_db()
    world.run(rollout)
    page.wait_for_selector(".st.pill:has-text('Reverted')")
    assert world.value("n1") == "60"


CONTROLS = """() => {
  const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
  const isOther = (e) => e.type === "radio" && [...document.getElementsByName(e.name)].some((o) =>
    o !== e && o.form === e.form && (o.checked || !e.checked && o.compareDocumentPosition(e) & 4));
  window.unreached = new Set([...document.querySelectorAll(controls)].filter(
    (e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && !isOther(e)));
  return window.unreached.size;
}"""
"""What there is to press, choose or fill in. Of radio buttons only the one that Tab leads to; arrows lead on."""


@pytest.mark.parametrize("width", [1440, 390])
def test_every_control_is_a_stop(world: World, visit: Visit, live_server: Any, width: int) -> None:  # noqa: F811
    plan = world.plan()
    reviews.request(plan, by=world.author)
    rollout = world.run(world.started(world.plan(world.revision({"vm.swappiness": "20"}))))
    page = visit(world.approver, "/", width=width)
    for path in ("/", "/approvals/", f"/plans/P-{plan.number}/", f"/rollouts/R-{rollout.number}/", "/nodes/"):
        walked_whole(page, live_server.url + path)
    theirs = visit(world.operator, "/", width=width)
    for path in ("/plans/new/", f"/rollouts/R-{rollout.number}/", f"/nodes/{world.node('n1').pk}/"):
        walked_whole(theirs, live_server.url + path)


def walked_whole(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(CONTROLS) > 5
    for now in stops(page):
        if now["isNowhere"]:
            break
    left = page.evaluate("[...window.unreached].filter(e => e.isConnected).map(e => e.outerHTML.slice(0, 200))")
    assert not left, f"no way by Tab on {address}"


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
    text_before = page.inner_text("#rollout")

    for _ in range(3):
        world.tick(3)
        world.slice(rollout)
    two_updates(page)

    assert page.inner_text("#rollout") != text_before, "or nothing was updated"
    assert page.evaluate("[document.activeElement.innerText.trim(), scrollY]") == before


def test_when_the_focused_control_goes_tab_goes_on_from_its_place(world: World, visit: Visit) -> None:  # noqa: F811
    rollout = world.started()
    world.slice(rollout)
    page = visit(world.operator, f"/rollouts/R-{rollout.number}/")
    tab_to(page, "^Pause$")

    world.run(rollout)
    page.wait_for_selector(".st.pill:has-text('Succeeded')")
    page.keyboard.press("Tab")

    assert page.evaluate("document.activeElement.closest('#rollout') !== null"), "or it begins at the top once more"


def test_nothing_typed_or_chosen_is_lost_in_a_live_update(world: World, visit: Visit) -> None:  # noqa: F811
    rollout = world.started(canary=1, batch="1")
    world.until(rollout, "succeeded")
    rollout = rollout_actions.pause(rollout, by=world.operator)
    world.run(rollout)
    freezes.freeze(cluster=world.cluster, reason="Holiday", by=world.operator)
    page = visit(world.operator, f"/rollouts/R-{rollout.number}/")
    tab_to(page, id="in-flight")
    page.keyboard.press("ArrowDown")
    tab_to(page, id="revert-reason")
    page.keyboard.type("The launch is tomor")
    page.keyboard.press("ArrowLeft")
    text_before = page.inner_text("#rollout")

    rollout_actions.skip(rollout, rollout.steps.filter(status="queued").last(), by=world.operator)
    two_updates(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.type("row.")

    assert page.inner_text("#rollout") != text_before, "or nothing was updated"
    assert page.input_value("#revert-reason") == "The launch is tomorrow."
    assert page.input_value("#in-flight") == "revert"


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


LATER = "const wait = setTimeout; window.setTimeout = (does, ms, ...more) => wait(does, ms || 1500, ...more)"
"""htmx begins in a task of its own behind the scripts, which a busy machine does later."""


def test_what_is_typed_before_the_page_is_whole_is_searched_for(world: World, visit: Visit) -> None:  # noqa: F811
    page = visit(world.operator, "/plans/")
    page.add_init_script(LATER)
    page.reload()
    page.keyboard.press("/")
    page.keyboard.type("n")
    page.wait_for_selector("#hits a:has-text('n3')")


def test_without_javascript_the_search_has_a_page(world: World, visit: Visit) -> None:  # noqa: F811
    page = visit(world.operator, "/plans/", java_script_enabled=False)
    page.fill("#q", "atlas")
    page.press("#q", "Enter")
    page.wait_for_url(re.compile(r"/search/\?q=atlas$"))
    assert page.inner_text("main .hits a >> nth=0").startswith("atlas")
