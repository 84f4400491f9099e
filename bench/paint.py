"""Weight and first paint of each page, in headless Chromium, at fleets of several sizes.

The embedded server's web part answers over SQLite, filled as for `bench pages`. Each page is opened in a browser that
has nothing yet, and then once more with what the first visit left in its cache.
"""

from __future__ import annotations

import http.cookies
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import Table, load, median
from bench.pages import bare, filled

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
VISITS = 3
SETTLE_MS = 300
"""After everything is loaded, so that parts that renew themselves, and the last paint, are seen."""
UNSEEN = (
    "/api/",
    "/live/",
    "/found/",
    "/lately/",
    "/selection",
    "/openapi",
    ".yaml",
    "/healthz",
    "/readyz",
    "/metrics",
)
"""Not pages: what programs ask for, and parts of pages."""
PAINTS = """() => new Promise(done => {
  const first = performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0] ?? null;
  new PerformanceObserver(list => done([first, list.getEntries().at(-1).startTime]))
    .observe({type: 'largest-contentful-paint', buffered: true});
  setTimeout(() => done([first, first]), 1000);
})"""
Visit = dict[str, float]


def measure(counts: Sequence[int]) -> list[Table]:
    sizes = [f"{count:,} nodes" for count in counts]
    table = Table(
        "Pages in a browser",
        ["page", "requests", "KB, first visit", *(f"{size}: KB, again" for size in sizes),
         *(f"{size}: first paint, ms, first visit / again" for size in sizes),
         *(f"{size}: largest paint, ms, first visit / again" for size in sizes)],
        f"Headless Chromium at 1440 px, as an admin who sees everything; medians of {VISITS}. KB as sent, with headers."
        " "
        "First paint is the first text or picture; largest is the paint of the largest part in view, which is when a "
        "page says what it is for. Milliseconds are from the click and hold the server's answer, on this machine. "
        f"Requests and KB of a first visit are those at {max(counts):,} nodes.",
    )  # fmt: skip
    around = Table("Meanwhile", ["nodes", "pages", "load"])
    seen: dict[str, dict[int, tuple[Visit, Visit]]] = defaultdict(dict)
    for count in counts:
        for page, visits in _visited_all(count):
            seen[page][count] = visits
        around.add(count, len(seen), load())
    for page, by_size in sorted(seen.items()):
        if set(by_size) == set(counts):
            pairs = [by_size[count] for count in counts]
            first, _ = by_size[max(counts)]
            table.add(
                page,
                int(first["requests"]),
                first["kb"],
                *(again["kb"] for _, again in pairs),
                *(_both(visits, "first") for visits in pairs),
                *(_both(visits, "largest") for visits in pairs),
            )
    return [table, around]


def _both(visits: tuple[Visit, Visit], name: str) -> str:
    return f"{visits[0][name]:.0f} / {visits[1][name]:.0f}"


def _visited_all(count: int) -> Iterator[tuple[str, tuple[Visit, Visit]]]:
    with filled("SQLite", count) as (environment, filled_text), _server(environment) as url, _chromium() as browser:
        crowd = json.loads(filled_text)
        pages = [page for page in crowd["pages"] if not any(part in page for part in UNSEEN)]
        cookies = [
            {"name": morsel.key, "value": morsel.value, "url": url}
            for morsel in http.cookies.SimpleCookie(crowd["cookies"]).values()
        ]
        _visited_twice(browser, cookies, url + pages[0])  # templates are compiled once
        for page in pages:
            visits = [_visited_twice(browser, cookies, url + page) for _ in range(VISITS)]
            yield bare(page), (_median([first for first, _ in visits]), _median([other for _, other in visits]))


def _median(visits: Sequence[Visit]) -> Visit:
    return {name: median([visit[name] for visit in visits]) for name in visits[0]}


@contextmanager
def _server(environment: Mapping[str, str]) -> Iterator[str]:
    """The address of the web part, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.paint"],
        cwd=ROOT,
        env={**environment, "SETPOINT_EMBEDDED": "true"},  # which serves its own styles and scripts
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("the server did not start")
        yield url
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


def _visited_twice(browser: Any, cookies: Sequence[Mapping[str, str]], url: str) -> tuple[Visit, Visit]:
    """Visit a page with an empty cache, then with what the first visit left there."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        context.add_cookies(cookies)
        return _visited(context, url), _visited(context, url)
    finally:
        context.close()


def _visited(context: Any, url: str) -> Visit:
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    sizes: list[float] = []
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    failed: list[str] = []
    network.on("Network.loadingFailed", lambda event: failed.append(event["errorText"]))
    answer = page.goto(url, wait_until="load")
    if answer is None or answer.status != 200:
        raise RuntimeError(f"{url} answers {answer and answer.status}")
    page.wait_for_timeout(SETTLE_MS)
    first, largest = page.evaluate(PAINTS)
    page.close()
    if first is None or failed:
        raise RuntimeError(f"{url} painted nothing, or lacks a part: {failed}")
    return {"requests": len(sizes), "kb": sum(sizes) / 1000, "first": first, "largest": largest}


# ── in the process that serves ────────────────────────────────────────────────────────────────────────────────────────
def serve() -> None:
    """Serve until the process, or its input, ends."""
    import django

    django.setup()
    from config import embedded

    running = embedded.start(with_watch=False, with_beat=False)
    sys.stdout.write(running.url + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    running.stop()
    embedded.leave()


if __name__ == "__main__":
    serve()
