"""The README's walks, word by word: what it says to press is pressed, what it says one sees must be there.

The test knows nothing of the walks but how they are written: **bold** is pressed or chosen, *italic* is seen, an
address such as `operator@example.com` is whose window it is, and `make …` is run in a second terminal.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.full.browser.test_pages_in_browser import VENDORED
from tests.full.harness.browser import launched, needs_browser
from tests.full.harness.demo import Demo

README = Path(__file__).resolve().parents[3] / "README.md"
HEADINGS = ("### Five minutes: ", "### Five more minutes: ", "### Five minutes more: ")
TERM = re.compile(r"\*\*(?P<press>[^*]+)\*\*|\*(?P<see>[^*]+)\*|`(?P<who>[a-z]+)@example\.com`|`(?P<run>make [^`]+)`")
HANGS_SECONDS = 600.0
"""Without a reader's pauses it takes half a minute on a quiet machine; a loaded one may need ten times that."""
SEE_MS = 240_000
"""Components come one after the other: a minute and a half on a quiet machine."""

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.skipif(not VENDORED.exists(), reason="no icons: make vendor"),
]


def walk(heading: str) -> list[tuple[str, str]]:
    """(press | see | who | run, text), in order: of the numbered steps below a heading."""
    text = README.read_text(encoding="utf-8").partition(heading)[2].partition("\n##")[0]
    numbered = re.search(r"\n1\. (.|\n)*?(?=\n\n|\Z)", text)
    assert numbered, heading
    steps = " ".join(numbered[0].split())
    instructions = []
    for match in TERM.finditer(steps):
        kind = str(match.lastgroup)
        instructions.append((kind, match[kind]))
    return instructions


def as_shown(text: str) -> str:
    """Return the pattern of a text whose words the page's source may part with line breaks, which do not show."""
    return r"\s+".join(map(re.escape, text.split()))


class Windows:
    """Each person's browser window, opened and logged in when first needed."""

    def __init__(self, running: Any, values: Mapping[str, str]) -> None:
        self.running, self.values = running, values
        self.pages: dict[str, Any] = {}
        self.page: Any = None

    def who(self, name: str) -> None:
        if name in self.pages:
            self.page = self.pages[name]
            self.page.reload()
            return
        self.page = self.pages[name] = self.running.new_context(viewport={"width": 1440, "height": 900}).new_page()
        self.page.set_default_timeout(SEE_MS)
        self.page.goto(self.values["SETPOINT_URL"])
        self.page.fill("#id_email", f"{name}@example.com")
        self.page.fill("#id_password", self.values[f"SETPOINT_PASSWORD_{name.upper()}"])
        self.page.click("button:has-text('Log in')")
        self.page.wait_for_selector("h1:has-text('Fleet')")

    def press(self, name: str) -> None:
        """The first link or button of that name that can be pressed; or a choice of that name."""
        choice = self.page.locator("select", has=self.page.locator("option", has_text=name))
        if choice.count():
            choice.first.select_option(label=name)
            return
        verdict = self.page.locator("label.choice", has=self.page.locator("b", has_text=re.compile(f"^{name}$")))
        if verdict.count():
            verdict.first.click()
            return
        exact = re.compile(rf"^\s*{as_shown(name)}\s*(\d+.*)?$")
        links = self.page.get_by_role("link", name=exact)
        target = self.page.get_by_role("button", name=exact).or_(links).locator("visible=true").first
        assert target.get_attribute("aria-disabled") != "true", f"{name} cannot be pressed"
        target.click()
        self.page.wait_for_load_state()

    def run(self, command: str) -> None:
        """Run a command in the demo's folder, as a reader does."""
        folder = Path(self.values["SETPOINT_LAB_CA"]).parents[1]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
        clean["SETPOINT_VAR"] = str(folder)
        subprocess.run(command.split(), cwd=README.parent, env=clean, check=True, timeout=HANGS_SECONDS)

    def see(self, text: str) -> None:
        self.page.get_by_text(re.compile(as_shown(text))).locator("visible=true").first.wait_for()


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    demo = Demo(tmp_path_factory.mktemp("walk"))
    try:
        yield demo.values()
    finally:
        demo.end()


@pytest.fixture
def windows(values: Mapping[str, str]) -> Iterator[Windows]:
    with launched() as running:
        yield Windows(running, values)
    os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE", None)


@pytest.mark.parametrize(
    ("heading", "presses", "sights", "last"),
    [
        (HEADINGS[0], 15, 12, ("press", "Revert all")),
        (HEADINGS[1], 24, 12, ("run", "make break WHAT=quota")),
        (HEADINGS[2], 8, 13, ("press", "Alerts")),
    ],
)
def test_the_readme_has_walks_that_name_what_to_press_and_what_to_see(
    heading: str, presses: int, sights: int, last: tuple[str, str]
) -> None:
    steps = walk(heading)
    kinds = [kind for kind, _ in steps]
    assert kinds.count("press") >= presses
    assert kinds.count("see") >= sights
    assert last in steps


@pytest.mark.long
@pytest.mark.parametrize("heading", HEADINGS, ids=["a repair and a change taken back", "components", "GPUs"])
def test_their_words_lead_through_the_demo(windows: Windows, heading: str) -> None:
    """The second walk continues where the first ended, as its numbers say."""
    began, done = time.monotonic(), []
    for kind, text in walk(heading):
        try:
            getattr(windows, kind)(text)
        except Exception as error:
            raise AssertionError(f"README: {kind} “{text}”, after {done[-4:]}: {error}") from error
        done.append(f"{kind} {text}")
    assert time.monotonic() - began < HANGS_SECONDS
