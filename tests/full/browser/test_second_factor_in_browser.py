"""A second factor in a real browser: its QR code is read from the screen, in both themes and on a phone."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.accounts import authenticator
from tests.factories import PASSWORD, UserFactory
from tests.full.browser import test_pages_in_browser as pages
from tests.full.browser.test_pages_in_browser import WIDTHS, browser, obstacles
from tests.full.harness.answers import answers_ended

__all__ = ["browser"]  # a fixture

READER = Path(__file__).resolve().parents[3] / "node_modules/jsqr/dist/jsQR.js"
READ = """async (source) => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  return jsQR(canvas.getImageData(0, 0, image.width, image.height).data, image.width, image.height)?.data ?? null;
}"""

pytestmark = [
    *pages.pytestmark,
    pytest.mark.skipif(not READER.exists(), reason="no jsQR: make vendor"),
    pytest.mark.one_database,
    pytest.mark.long,
]


@pytest.fixture(params=[(width, theme) for width in WIDTHS.values() for theme in ("light", "dark")][::3], ids=str)
def page(browser: Any, live_server: Any, request: Any) -> Iterator[Any]:
    width, theme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    with answers_ended():
        yield context.new_page()
        context.close()


@pytest.fixture
def reader(browser: Any) -> Iterator[Any]:
    """A page that Setpoint had no hand in, with a reader of QR codes."""
    context = browser.new_context()
    page = context.new_page()
    page.add_script_tag(path=str(READER))
    yield lambda picture: page.evaluate(READ, f"data:image/png;base64,{base64.b64encode(picture).decode()}")
    context.close()


def test_the_code_on_the_screen_sets_up_an_app_that_logs_in(page: Any, live_server: Any, reader: Any) -> None:
    user = UserFactory(email="ada@example.com", roles=["viewer"])
    page.goto(f"{live_server.url}/login/?next=/account/second-factor/")
    page.fill("input[name=email]", user.email)
    page.fill("input[name=password]", PASSWORD)
    page.click("button:has-text('Log in')")
    page.fill("input[name=password]", PASSWORD)
    page.click("button:has-text('Make a key')")
    assert obstacles(page) == []

    scanned = reader(page.locator("svg.qr").screenshot())
    link = urlsplit(scanned)
    assert (link.scheme, link.netloc) == ("otpauth", "totp")
    assert unquote(link.path).endswith(f":{user.email}")
    key = parse_qs(link.query)["secret"][0]
    assert page.locator("#factor-key").inner_text().replace(" ", "") == key
    page.fill("input[name=code]", authenticator.code(key))
    page.click("button:has-text('Turn it on')")
    recovery = page.locator("#recovery-codes").inner_text().split()
    assert obstacles(page) == []

    page.context.clear_cookies()
    page.goto(f"{live_server.url}/login/?next=/account/")
    page.fill("input[name=email]", user.email)
    page.fill("input[name=password]", PASSWORD)
    page.click("button:has-text('Log in')")
    assert obstacles(page) == []
    page.fill("input[name=code]", recovery[0])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_server.url}/account/")
    assert obstacles(page) == []
    page.goto(f"{live_server.url}/account/confirm/")
    assert obstacles(page) == []
    page.fill("input[name=password]", PASSWORD)
    page.fill("input[name=code]", recovery[1])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_server.url}/account/")
