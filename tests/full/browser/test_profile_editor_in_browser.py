"""The profile editor in a real browser: by keyboard alone, live, and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiles.models import Profile
from tests.full.browser.test_pages_in_browser import Visit, browser, obstacles, pytestmark, visit, world
from tests.jobs.conftest import World

__all__ = ["browser", "pytestmark", "visit", "world"]  # fixtures, and what this file needs to run at all


def focused(page: Any) -> str:
    """id or value of what has the focus."""
    return str(page.evaluate("(e => e.id || e.value || e.tagName)(document.activeElement)"))


def eventually(page: Any, answer: Callable[[], Any], wanted: Any) -> None:
    """Ask until it is so: the page's own policy forbids Playwright's way of waiting for an expression."""
    for _ in range(150):
        if answer() == wanted:
            return
        page.wait_for_timeout(200)
    raise AssertionError(f"{answer()!r} is not {wanted!r}")


def tab_to(page: Any, wanted: str) -> None:
    for _ in range(120):
        if focused(page) == wanted:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{wanted} cannot be reached; the focus is on {focused(page)}")


def test_a_profile_is_written_by_keyboard_alone(world: World, visit: Visit) -> None:
    world.revision({"vm.dirty_ratio": "30"})
    page = visit(world.operator, "/profiles/new/?source=extends:%20gpu%0A")
    tab_to(page, "id_name")
    page.keyboard.type("mine")
    tab_to(page, "f-find")
    page.keyboard.type("backlog")
    page.wait_for_selector("#found button")
    tab_to(page, "add:net.core.netdev_max_backlog")
    page.keyboard.press("Enter")
    page.wait_for_selector("#v-net\\.core\\.netdev_max_backlog")
    eventually(page, lambda: focused(page), "v-net.core.netdev_max_backlog")

    page.keyboard.type("64Mi")
    page.wait_for_selector("#m-net\\.core\\.netdev_max_backlog >> text=is counted in packets")
    assert focused(page) == "v-net.core.netdev_max_backlog", "the verdict takes nothing out of anybody's hands"
    assert obstacles(page) == []
    page.keyboard.press("Control+A")
    page.keyboard.type("20000")
    page.wait_for_selector("#verdict >> text=Valid")

    tab_to(page, "yaml")  # around the page to the button, whose value it is
    page.keyboard.press("Enter")
    eventually(page, lambda: focused(page), "id_source")
    assert page.input_value("#id_source") == "extends: gpu\nsettings:\n  net.core.netdev_max_backlog: 20000\n"
    page.keyboard.press("Control+End")
    page.keyboard.type("labels: {\n")
    page.wait_for_selector("#verdict >> text=is not closed")
    tab_to(page, "form")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=This text can only be edited as YAML now")
    assert page.input_value("#id_source").endswith("labels: {\n"), "switching loses nothing"
    page.locator("a[data-line]").focus()
    page.keyboard.press("Enter")
    chosen = "(e => e.value.slice(e.selectionStart, e.selectionEnd))(document.activeElement)"
    assert page.evaluate(chosen) == "labels: {"
    page.keyboard.type("labels: {a: b}")
    page.wait_for_selector("#verdict >> text=Valid")
    tab_to(page, "save")
    page.keyboard.press("Enter")

    page.wait_for_url("**/profiles/mine/")
    assert Profile.objects.get(name="mine").draft == (
        "extends: gpu\nsettings:\n  net.core.netdev_max_backlog: 20000\nlabels: {a: b}\n"
    )


def test_the_editor_needs_no_javascript(world: World, visit: Visit) -> None:
    page = visit(world.operator, "/profiles/new/", java_script_enabled=False)
    page.fill("#id_name", "plain")
    page.fill("#f-find", "swappiness")
    page.click("button:has-text('Find')")
    page.click("button:has-text('vm.swappiness')")
    page.fill("#v-vm\\.swappiness", "900")
    page.click("button:has-text('Create the profile')")
    assert "900 is out of range: 0 to 200" in page.inner_text("main")
    assert page.input_value("#id_name") == "plain"
    page.fill("#v-vm\\.swappiness", "9")
    page.click("button:has-text('Edit as YAML')")
    assert page.input_value("#id_source") == "settings:\n  vm.swappiness: 9\n"
    page.click("button:has-text('Create the profile')")

    page.wait_for_url(re.compile(r"/profiles/plain/$"))


def test_a_file_is_imported_with_and_without_javascript(world: World, visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("# mine\nsettings:\n  vm.swappiness: 7\n")
    for number, script in enumerate((True, False)):
        page = visit(world.operator, "/profiles/import/", java_script_enabled=script)
        page.fill("#id_name", f"brought-{number}")
        page.set_input_files("#id_file", str(file))
        if script:
            eventually(page, lambda page=page: page.input_value("#id_source"), file.read_text())
        page.click("button:has-text('Preview')")
        page.wait_for_selector("text=Create the profile")
        assert page.input_value("#id_source") == file.read_text()
        page.click(f"button:has-text('Create brought-{number}')")
        page.wait_for_url(re.compile(rf"/profiles/brought-{number}/$"))
        assert Profile.objects.get(name=f"brought-{number}").draft == file.read_text()


def test_a_components_removal_is_asked_for_with_and_without_javascript(world: World, visit: Visit) -> None:
    for script in (True, False):
        name = f"gone-{'with' if script else 'without'}"
        page = visit(world.operator, "/profiles/new/", java_script_enabled=script)
        page.fill("#id_name", name)
        page.click("summary:has-text('have one removed')")
        page.click("button[aria-label^='Ask for the removal of Volcano']")
        page.wait_for_selector("text=To be removed where it is installed")
        page.fill("#cw-volcano", "Kueue took its place")
        assert obstacles(page) == [] if script else True
        page.click("button:has-text('Create the profile')")
        page.wait_for_url(re.compile(rf"/profiles/{name}/$"))
        assert (
            Profile.objects.get(name=name).draft
            == "components:\n  volcano:\n    remove: true\n    why: Kueue took its place\n"
        )
