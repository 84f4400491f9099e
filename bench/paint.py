"""What each page weighs and when it first shows something, in headless Chromium, on the demo's data.

Every page of the URL table, each in a browser that has nothing yet and then once more with its cache filled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import Table, median

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = Path("/usr/bin/chromium")
TABLE = ROOT / "tests/jobs/access.txt"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
READY_SECONDS = 600.0
TIMES = 3
PAINTED = "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0] ?? null"


def measure() -> list[Table]:
    table = Table(
        "Pages in a browser",
        ["page", "requests", "KB, first visit", "KB, again", "first paint ms, first visit", "ms, again"],
        note=f"Headless Chromium at 1440 px on the demo, by an admin; medians of {TIMES}; KB as sent, with headers.",
    )
    with _demo() as values, _chromium() as browser:
        state = _logged_in(browser, values)
        for path in paths(values):
            visits = [_visited_twice(browser, state, values["SETPOINT_URL"] + path) for _ in range(TIMES)]
            first, again = [one for one, _ in visits], [other for _, other in visits]
            table.add(
                path,
                int(median([seen["requests"] for seen in first])),
                median([seen["bytes"] for seen in first]) / 1024,
                median([seen["bytes"] for seen in again]) / 1024,
                median([seen["painted"] for seen in first]),
                median([seen["painted"] for seen in again]),
            )
    return [table]


def paths(values: Mapping[str, str]) -> list[str]:
    """Addresses of the pages that the table of access gives an admin, on objects of the demo."""
    from tests.full.client import Person

    admin = Person(values["SETPOINT_URL"], "admin@example.com", values["SETPOINT_TOKEN_ADMIN"])
    rollout = admin.every("rollouts")[0]
    plan = admin.every("plans", status="review")[0]
    drifted = admin.every("compliance/settings", state="drifted")[0]
    cluster = next(found for found in admin.every("clusters") if found["name"] == "atlas-training")
    step = admin.every(f"rollouts/{rollout['id']}/steps")[0]
    pool, rule = admin.every("pools")[0], admin.every("approval-rules")[0]
    places = {
        "plans/P-<int:number>": f"plans/P-{plan['number']}",
        "rollouts/R-<int:number>": f"rollouts/R-{rollout['number']}",
        "steps/<uuid:pk>": f"steps/{step['id']}",
        "clusters/<uuid:pk>": f"clusters/{cluster['id']}",
        "pools/<int:pk>": f"pools/{pool['id']}",
        "nodes/<int:pk>": f"nodes/{drifted['node']}",
        "rules/<int:pk>": f"rules/{rule['id']}",
        "profiles/<slug:name>": "profiles/gpu-baseline",
        "/r<int:number>": "/r1",
    }
    found = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("GET"):
            continue
        *_, admins, _outside, route = line.split(maxsplit=7)
        for name, value in places.items():
            route = route.replace(name, value)
        if admins == "200" and not route.startswith("api/") and not set("<^") & set(route) and _is_page(route):
            found.append("/" + route.lstrip("/"))
    return found


def _is_page(route: str) -> bool:
    """Not a file or a part of a page."""
    return route == "/" or (route.endswith("/") and not route.endswith(("/live/", "/found/")))


@contextmanager
def _demo() -> Iterator[Mapping[str, str]]:
    """What demo.env says, once it stands there."""
    with tempfile.TemporaryDirectory(prefix="setpoint-paint-") as folder:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
        command = [sys.executable, "manage.py", "demo", "--port", "0"]
        process = subprocess.Popen(command, cwd=ROOT, env=clean | {"SETPOINT_VAR": folder}, stdout=subprocess.DEVNULL)
        try:
            file, until = Path(folder, "demo.env"), time.monotonic() + READY_SECONDS
            while not file.exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the demo did not start")
                time.sleep(0.5)
            yield dict(line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines())
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


def _logged_in(browser: Any, values: Mapping[str, str]) -> Any:
    """The cookies of an admin."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(values["SETPOINT_URL"] + "/login/")
    page.fill("#id_email", "admin@example.com")
    page.fill("#id_password", values["SETPOINT_PASSWORD_ADMIN"])
    page.click("button:has-text('Log in')")
    page.wait_for_url(values["SETPOINT_URL"] + "/")
    state = context.storage_state()
    context.close()
    return state


def _visited_twice(browser: Any, state: Any, url: str) -> tuple[dict[str, float], dict[str, float]]:
    """With an empty cache, then with what the first visit left there."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, storage_state=state)
    try:
        return _visited(context, url), _visited(context, url)
    finally:
        context.close()


def _visited(context: Any, url: str) -> dict[str, float]:
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    sizes: list[float] = []
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url, wait_until="load")
    page.wait_for_timeout(200)
    painted = page.evaluate(PAINTED)
    page.close()
    if painted is None:
        raise RuntimeError(f"{url} painted nothing")
    return {"requests": len(sizes), "bytes": sum(sizes), "painted": painted}
