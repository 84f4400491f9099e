"""Every page of the running demo in a real browser, on screen and on paper: no violation of the pages' own policy, no
message in the console, no request that fails, nothing wider than a phone, no word that a template or a plural left
wrong. Forms are sent with mistakes, too."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.full.browser.test_pages_in_browser import VIOLATIONS, browser, failed, is_complaint, pytestmark

__all__ = ["browser", "pytestmark"]  # a fixture, and what this file needs to run at all

ALIKE = 1
"""Pages of one shape, such as a node's or a plan's."""
LINKS = "all => all.map(one => new URL(one.getAttribute('href'), location).href)"
"""Also those of drawings."""
TEXT = """() => {
  const main = document.querySelector('main');
  const quoted = 'pre, code, textarea, select, .mono, .diff, .visually-hidden';
  main.querySelectorAll(quoted).forEach(one => { one.textContent = '…'; });
  return main.innerText;
}"""
"""What Setpoint says itself, without files, values and keys, which may hold any word. It spoils the page."""
COUNTED = "node|pod|GPU|plan|rollout|value|change|cluster|component|batch|job|namespace"
COUNTED_TOO = (
    "alert|approver|day|event|field|file|finding|hour|key|line|minute|object|page|person|pool|profile|record|step"
)
WRONG = (
    re.compile(r"(?<!\w)(?:undefined|NaN|nan|Infinity|\[object \w+\])(?=$|[\s.,:;])|[a-z,] None\b"),
    re.compile(r"\{\{|\{%|%\}|&(?:amp|lt|gt|quot|#\d+);|</?(?:a|b|br|div|em|i|li|p|span|svg|td|ul)\b[^>]*>"),
    re.compile(rf"(?<![\d.,:/-])(?<!of )1 (?:{COUNTED}|{COUNTED_TOO})e?s\b"),
    re.compile(rf"(?<![\w-])(?:0|[2-9]|\d{{2,}}) (?:{COUNTED})\b(?! \w+s\b|-| by )"),
    re.compile(r"\w [,;.](?=\s|$)|,,|\.\.(?!\.)|\b([A-Za-z]{2,}) \1\b(?!-)"),
    re.compile(r"\bIt of\b|\b0 of 0\b"),
)
"""Left by a template, a plural or a join."""
FILES = re.compile(r"\.(csv|json|yaml)(\?|$)|/export/.+/|/static/|/logout|[?&]as=")


def faults(text: str) -> list[str]:
    """List faults in the page's lines and cells."""
    parts = re.split(r"[\n\t]", text)
    matches = [match for part in parts for rule in WRONG for match in rule.finditer(part)]
    return [f"“{match.string[max(0, match.start() - 30) : match.end() + 20]}”" for match in matches]


@pytest.mark.parametrize(
    "text",
    [
        "It has None.", "NaN GPU-hours", "of [object Object]", "{{ plan.name }}", "a &amp; b", "<b>", "1 pods",
        "1 GPUs", "2 node", "32 GPU", "none , all", "It of Job", "0 of 0", "the the", "Done..",
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_text_is_found(text: str) -> None:
    assert faults(f"Before. {text} and after")


@pytest.mark.parametrize(
    "text",
    [
        "None of 3 nodes", "1 of 2 pods", "0 of 1 pods", "1 pod", "21 nodes", "2 GPU jobs", "more …", "at 1 is",
        "node gpu-011 GPU 1 is hot",
    ],
)  # fmt: skip
def test_what_is_right_in_a_text_is_left(text: str) -> None:
    assert faults(f"Before. {text} and after") == []


class Browsing:
    """One user's browser tab, and every complaint in it."""

    def __init__(self, browser: Any, values: Mapping[str, str], person: str) -> None:
        self.url, self.wrong = values["SETPOINT_URL"], set[str]()
        self.page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        self.page.set_default_timeout(60_000)
        self.page.add_init_script(VIOLATIONS)
        self.page.on("console", lambda message: self._note(message.text) if is_complaint(message) else None)
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("requestfailed", lambda request: self._note(failed(request)) if failed(request) else None)
        self.page.on(
            "response",
            lambda response: self._note(f"{response.status} {response.url}") if response.status >= 500 else None,
        )
        self.page.goto(f"{self.url}/login/")
        self.page.fill("#id_email", f"{person}@example.com")
        self.page.fill("#id_password", values[f"SETPOINT_PASSWORD_{person.upper()}"])
        self.page.click("button:has-text('Log in')")
        self.page.wait_for_url(f"{self.url}/")

    def _note(self, text: str) -> None:
        self.wrong.add(f"{self.page.url.removeprefix(self.url)}: {text}")

    def shown(self, path: str) -> Iterator[str]:
        """Opens the page, on screen and as it is printed; where its links lead."""
        answer = self.page.goto(self.url + path)
        assert answer is not None
        assert answer.status in (200, 403, 404, 410), f"{path}: {answer.status}"
        if path == "/api/v1/docs":
            self.page.wait_for_selector(".swagger-ui .info")
            return
        assert self.page.locator("h1").count() == 1, path
        self.page.emulate_media(media="print")
        self.page.emulate_media(media="screen")
        self.page.set_viewport_size({"width": 390, "height": 844})
        if (wide := self.page.evaluate("document.documentElement.scrollWidth")) > 390:
            self._note(f"{wide} px wide on a phone")
        self.page.set_viewport_size({"width": 1440, "height": 900})
        links = self.page.eval_on_selector_all("a[href]", LINKS)
        for wrong in faults(self.page.evaluate(TEXT)):
            self._note(wrong)
        for link in links:
            if link.startswith(self.url):
                yield link.removeprefix(self.url).partition("#")[0]


OF_AN_OPERATOR = {"/profiles/new/", "/plans/new/", "/gpus/", "/audit/"}
OF_AN_ADMINISTRATOR = ("/clusters/connect/", "/people/", "/alerts/channels/", "/rules/")


def test_the_whole_demo_is_read_without_a_complaint(browser: Any, values: Mapping[str, str]) -> None:
    browsing = Browsing(browser, values, "operator")
    seen: set[str] = set()
    taken: Counter[str] = Counter()
    todo = ["/", "/api/v1/docs", "/nothing-here/"]
    while todo:
        path = todo.pop(0)
        shape = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{40,}|\d+|\?.*", "#", path)
        if path in seen or taken[shape] == ALIKE or FILES.search(path):
            continue
        seen.add(path)
        taken[shape] += 1
        todo += browsing.shown(path)
    assert len(seen) > 60, "or this read something else"
    assert seen >= OF_AN_OPERATOR
    assert any(path.endswith("/edit/") for path in seen)
    assert "\n".join(sorted(browsing.wrong)) == ""


def test_what_only_an_administrator_sees_is_read_without_a_complaint(browser: Any, values: Mapping[str, str]) -> None:
    browsing = Browsing(browser, values, "admin")
    for path in OF_AN_ADMINISTRATOR:
        list(browsing.shown(path))
    assert "\n".join(sorted(browsing.wrong)) == ""


@pytest.mark.parametrize(
    ("path", "field", "text"),
    [
        ("/profiles/new/?view=yaml", "#id_source", "settings:\n  vm.swappiness: [1\n"),
        ("/plans/new/", "#id_batch", "a lot"),
        ("/alerts/channels/new/", "#id_name", "x"),
        ("/profiles/import/", "#id_source", "a: {"),
    ],
)
def test_a_form_with_a_mistake_comes_back_without_a_complaint(
    browser: Any, values: Mapping[str, str], path: str, field: str, text: str
) -> None:
    browsing = Browsing(browser, values, "admin" if path in OF_AN_ADMINISTRATOR or "channels" in path else "operator")
    browsing.page.goto(browsing.url + path)
    browsing.page.fill(field, text)
    form = browsing.page.locator("main form", has=browsing.page.locator(field))
    form.evaluate("one => one.noValidate = true")
    with browsing.page.expect_navigation():
        form.locator("button:not([type=button])").last.click()
    assert browsing.page.locator("h1").count() == 1
    assert browsing.page.locator("[role=alert], .t-bad, [aria-invalid=true]").count()
    assert "\n".join(sorted(browsing.wrong)) == ""
