"""Time ranges and the crosshair of charts in a real browser, whose zone is not UTC; and without a script."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.models import Node
from gpus.models import GpuDevice
from tests.clusters.factories import ClusterFactory
from tests.factories import PASSWORD, UserFactory
from tests.full.browser.test_pages_in_browser import AXE, VENDORED, Visit, browser, obstacles, visit
from tests.full.harness.browser import needs_browser
from tests.gpus.recording import Recording
from tools.page_wait import until

__all__ = ["browser", "visit"]

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.skipif(not (AXE.exists() and VENDORED.exists()), reason="no axe-core or icons: make vendor"),
]
API = "/api/v1/gpus"
SCRUB = "#over .scrub"
HALF_PAST_ELEVEN = round(datetime(2026, 11, 21, 11, 30, tzinfo=UTC).timestamp())
HERE = {"timezone_id": "Australia/Eucla"}
"""Eight hours and three quarters ahead of UTC: neither whole hours nor a change of clocks hides an error."""


@pytest.fixture
def world(live_server: Any, clock: Any) -> Recording:
    made = Recording(clock.at - timedelta(minutes=100), cluster=ClusterFactory(name="atlas"))
    made.held = {("n0", 0): ("team/a", 0.9), ("n1", 0): ("lab/b", 0.0)}
    made.store()
    made.go_on(3000)
    made.held["n0", 1] = ("team/a", 0.2)
    made.go_on(3000)
    made.person = UserFactory(is_superuser=True)
    made.person.set_password(PASSWORD)
    made.person.save(update_fields=["password"])
    return made


def pairs(text: str) -> dict[str, float]:
    """Figures of a crosshair, by word."""
    return {
        word: float(number) for word, number in re.findall(r"([A-Z][a-z]+(?: [a-z]+)?)\s+([\d.]+)(?=$|[;.\n ])", text)
    }


def spoken(page: Any) -> str:
    return page.inner_text(f"{SCRUB} [aria-live]")


def rest(page: Any, path: str) -> Any:
    return page.evaluate("(path) => fetch(path).then((answer) => answer.json())", API + path)


def test_pointer_and_keyboard_tell_the_figures_of_rest_in_local_time(world: Recording, visit: Visit) -> None:
    page = visit(world.person, "/gpus/?window=1h", **HERE)
    (row,) = [row for row in rest(page, "/bands?seconds=300&start=1h") if row["start"] == "2026-11-21T11:30:00Z"]
    state = {name: row[name] / row["recorded"] for name in ("effective", "low", "held", "free")}
    assert state == {"effective": 1, "low": 1, "held": 1, "free": 5}, "or this tries too little"

    box = page.locator("#over .cht").bounding_box()
    begin, length = (int(page.get_attribute("#over [data-chart]", name)) for name in ("data-start", "data-length"))
    share = (HALF_PAST_ELEVEN + 150 - begin) / length
    page.mouse.move(box["x"] + share * box["width"], box["y"] + 60)
    shown = page.inner_text("#over .tip")
    assert "21 Nov 20:15–20:20 Australia/Eucla" in shown
    assert "21 Nov 11:30–11:35 UTC" in shown
    assert pairs(shown.partition("UTC")[2]) == {"Effective": 1, "Low": 1, "Held idle": 1, "Free": 5}
    page.mouse.move(1, 1)
    assert page.is_hidden("#over .tip")

    page.focus(SCRUB)
    page.keyboard.press("Home")
    for _ in range((HALF_PAST_ELEVEN - begin) // 300):
        page.keyboard.press("ArrowRight")
    assert "20:15–20:20 Australia/Eucla, 21 Nov 11:30–11:35 UTC: Effective 1; Low 1; Held idle 1; Free 5." in spoken(
        page
    )
    page.keyboard.press("End")
    assert "20:45–20:50" in spoken(page)
    assert "no data" in spoken(page), "the step under way has no reading yet"
    assert page.text_content("#over .cht text[data-at]:last-of-type") == "20:50"
    assert page.locator("#over [data-span]").first.inner_text().endswith("Australia/Eucla")


def test_dragging_and_the_keyboard_zoom_and_the_link_is_the_same_for_everybody(world: Recording, visit: Visit) -> None:
    page = visit(world.person, "/gpus/?by=model&window=1h&compare=before", **HERE)
    box = page.locator("#over .cht").bounding_box()
    y, at = box["y"] + 60, lambda share: box["x"] + share * box["width"]
    page.mouse.move(at(0.26), y)
    page.mouse.down()
    page.mouse.move(at(0.4), y, steps=4)
    page.mouse.move(at(0.49), y, steps=4)
    assert page.is_visible("#over .brush")
    page.mouse.up()
    page.wait_for_url("**from=**")
    assert "from=2026-11-21T11:20Z&to=2026-11-21T11:35Z" in page.url
    assert re.search(r"by=model.*compare=before|compare=before.*by=model", page.url)
    assert "window=" not in page.url
    assert page.locator(".compared tbody tr").count() == 4
    here = page.locator("#over-from").input_value(), page.locator("#over-to").input_value()
    assert here == ("2026-11-21T20:05", "2026-11-21T20:20")

    other = visit(world.person, "/gpus/" + page.url.partition("/gpus/")[2])
    assert other.locator("#over-from").input_value() == "2026-11-21T11:20"
    data = "document.querySelector('#over [data-chart]').dataset.series"
    assert other.evaluate(data) == page.evaluate(data)

    page.focus(SCRUB)
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url("**to=2026-11-21T11:30Z**")
    assert "from=2026-11-21T11:20Z" in page.url


def test_a_custom_range_is_typed_in_local_time_and_a_wrong_one_is_kept(world: Recording, visit: Visit) -> None:
    page = visit(world.person, "/gpus/", **HERE)
    page.click("#over-own summary")
    page.fill("#over-from", "2026-11-21T20:00")
    page.fill("#over-to", "2026-11-21T19:00")
    page.click("#over-show")
    page.wait_for_url("**from=2026-11-21T11:15Z&to=2026-11-21T10:15Z**")
    assert "To: It must be after from." in page.inner_text("#over [role=alert]")
    assert page.evaluate("document.activeElement.id") == "over-to"
    assert page.locator("#over-to").input_value() == "2026-11-21T19:00"
    page.fill("#over-to", "2026-11-21T20:45")
    page.click("#over-show")
    page.wait_for_url("**to=2026-11-21T12:00Z**")
    assert page.locator("#over [role=alert]").count() == 0
    assert obstacles(page) == []


def test_a_nodes_lines_have_one_crosshair_for_each_gpu_on_a_phone_too(world: Recording, visit: Visit) -> None:
    node = Node.objects.get(name="n0")
    GpuDevice.objects.create(
        cluster=world.cluster, node=node, node_name="n0", uuid="GPU-n0-1", index="1", values={"busy": 0.2}
    )
    page = visit(world.person, f"/nodes/{node.pk}/?window=1h", width=390, **HERE)
    page.focus("#gpus .scrub")
    page.keyboard.press("ArrowLeft")
    figures = page.inner_text("#gpus .scrub [aria-live]")
    assert re.search(r"Busy 20 %; Power 220 W\.", figures)
    assert "Australia/Eucla" in figures
    tip = page.locator("#gpus .tip").first.bounding_box()
    assert (tip["x"] >= 0, tip["x"] + tip["width"] <= 390) == (True, True)
    assert obstacles(page) == []


def test_an_update_of_the_page_keeps_crosshair_and_focus(world: Recording, visit: Visit) -> None:
    page = visit(world.person, "/gpus/?window=1h", **HERE)
    page.focus(SCRUB)
    page.keyboard.press("ArrowLeft")
    before = page.inner_text("#over .tip")
    page.evaluate("document.querySelector('#over').dataset.old = '1'")
    page.evaluate("""() => htmx.ajax("GET", location.href, { target: "#over", select: "#over", swap: "outerHTML" })""")
    focused = "document.activeElement?.matches('#over .scrub') && !document.querySelector('#over .tip').hidden"
    assert until(page, f"document.querySelector('#over').dataset.old === undefined && {focused}")
    assert page.inner_text("#over .tip") == before


def test_without_a_script_the_form_takes_times_of_any_zone(world: Recording, visit: Visit) -> None:
    page = visit(world.person, "/gpus/", java_script_enabled=False)
    assert page.locator(".scrub").count() == 0
    page.click("#over-own summary")
    page.fill("#over-from", "2026-11-21T20:00")
    page.fill("#over-to", "2026-11-21T20:45")
    page.fill("#over-zone", "Australia/Eucla")
    page.click("#over-show")
    assert "21 Nov 2026 11:15" in page.inner_text("#over-own summary")
    assert page.locator("#over-from").input_value() == "2026-11-21T20:00"
    assert page.get_attribute("#over [data-chart]", "data-length") == str(45 * 60)
    page.click("text=Earlier")
    assert "21 Nov 2026 10:30" in page.inner_text("#over-own summary")
