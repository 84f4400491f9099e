"""The documentation's site as `make docs` builds it: without network, and the same bytes for the same tree."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.full.harness.browser import launched, needs_browser
from tools.site import __main__ as program

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
LOADED = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "embed": "src",
    "object": "data",
    "use": "href",
}
PAGES = ("index", "README", "reference/settings", "reference/rest", "reference/alerts", "docs/architecture", "docs/gpu")

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.long,
]


def built(to: Path, seed: str, zone: str) -> Path:
    """Build in a network of its own, which has no way out."""
    environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": zone, "SETPOINT_URL": "https://elsewhere.example"}
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tools.site", "--to", str(to)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"), "1", "UTC")


def test_the_same_tree_gives_the_same_bytes(site: Path, tmp_path: Path) -> None:
    def digests(of: Path) -> dict[str, str]:
        files = [path for path in of.rglob("*") if path.is_file()]
        return {str(path.relative_to(of)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    assert digests(built(tmp_path / "again", "2", "Pacific/Chatham")) == digests(site)


def test_what_a_page_loads_is_in_the_site(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert len(loads.urls) > 3, "scripts and sheets, or this sees nothing"
        for url in loads.urls:
            assert is_of(site, page, url), f"{page.relative_to(site)} loads {url}"
    for sheet in site.rglob("*.css"):
        for url in in_css(sheet.read_text(encoding="utf-8")):
            assert is_of(site, sheet, url), f"{sheet.relative_to(site)} loads {url}"


class Loads(HTMLParser):
    """Addresses that a browser loads with a page; links that people press are none."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.is_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.is_style = tag == "style"
        self.urls += [given[name] for name in [LOADED.get(tag, "")] if given.get(name)]
        self.urls += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
        self.urls += in_css(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.is_style:
            self.urls += in_css(data)


def in_css(text: str) -> list[str]:
    return [
        url.strip("'\" ")
        for pair in re.findall(r"url\(([^)]*)\)|@import\s+[\"']([^\"']+)", text)
        for url in pair
        if url
    ]


def is_of(site: Path, page: Path, url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "data" or (not parts.path and not parts.netloc):
        return True
    target = page.parent.joinpath(parts.path).resolve()
    return not parts.scheme and not parts.netloc and target.is_relative_to(site.resolve()) and target.exists()


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    links = ["nowhere.md", "#no-such-heading", "other.md#no-such-heading"]
    lines = "\n\n".join(f"[x]({link})" for link in links)
    (tmp_path / "index.md").write_text(f"# A\n\n{lines}\n\n```{{toctree}}\nother\n```\n")
    (tmp_path / "other.md").write_text("# B\n\n## There\n")
    with pytest.raises(SystemExit) as ended:
        program.build(tmp_path, tmp_path / "out", tmp_path / "trees")
    assert ended.value.code
    named = capfd.readouterr().err
    assert [line for line in (3, 5, 7) if f"index.md:{line}: WARNING" not in named] == []


def test_a_folder_that_is_no_site_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("the only copy")
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", "--to", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode
    assert (tmp_path / "thesis.txt").read_text() == "the only copy"


# ── In a browser ──────────────────────────────────────────────────────────────────────────────────────────────────────
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def requests_of(page: Any) -> list[str]:
    """Return a list that gets the address of each request of a page."""
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    return requested


def test_pages_are_read_searched_and_accessible_without_another_host(address: str) -> None:
    axe = AXE.read_text(encoding="utf-8")
    with launched() as running:
        for scheme, width in (("light", 1440), ("dark", 390)):
            context = running.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            requested = requests_of(page)
            for name in PAGES:
                page.goto(f"{address}/{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
                page.evaluate(axe)
                wrong = page.evaluate(
                    "axe.run({runOnly: ['wcag2a', 'wcag2aa']}).then(r => r.violations.map(v => v.id))"
                )
                assert wrong == [], (name, scheme, width)
            page.goto(f"{address}/search.html?q=huge+pages")
            page.wait_for_selector("#search-results li a")
            page.get_by_role("link", name="Profiles", exact=True).last.click()
            page.wait_for_url("**/docs/profiles.html*")
            assert {url for url in requested if not url.startswith((address, "data:"))} == set()
            context.close()
