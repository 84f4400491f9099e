"""Takes docs/screenshots/ and its index from a demo: every page once, at 1440 px in light colors.

`make screenshots`. To look at the dark pages and the phone's as well, `ARGS="--looks light,dark,phone --into FOLDER"`:
they are not kept, because everybody who clones the repository would carry them. Needs Chromium and playwright
(requirements/test.txt). Starts its own demos, one of them large, and its own empty installation for the first-run page,
on free ports and in a folder that is thrown away.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.equipping import equip  # noqa: E402
from tools.page_wait import until  # noqa: E402
from tools.shot_list import SHOTS, Shot  # noqa: E402

TARGET = ROOT / "docs" / "screenshots"
INDEX = ROOT / "docs" / "screenshots.md"
BUDGET = 4_000_000
"""Bytes of all files in docs/screenshots together: people clone them."""
QUALITIES = (60, 45, 30, 20)
"""Of WebP: the next one is taken when a picture is larger than its share. Always life-size: words are to be read."""
SHARE = 42 * 1024
TALLEST = 1500
"""Pixels of a page that are shown."""
LOOKS = {"light": (1440, "light"), "dark": (1440, "dark"), "phone": (390, "light")}
"""Width in pixels and color scheme."""
KEPT = "light"
LARGE = 5000
START_SECONDS = 900.0
NOTHING_COMES = """() => ![...document.querySelectorAll('[hx-trigger="revealed"]')]
  .some((part) => part.getBoundingClientRect().top < innerHeight)"""
"""Whether what loads when it comes into view has come."""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]


class CannotShoot(SystemExit):
    """Ends the program with what is missing."""


# ── Servers ───────────────────────────────────────────────────────────────────────────────────────────────────────────
class Server:
    """A `manage.py` process with a folder of its own."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.folder, self.log, self.command = folder, folder / "output", " ".join(command)
        folder.mkdir(parents=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, "manage.py", *command],
                cwd=ROOT,
                env={**clean, "SETPOINT_VAR": str(folder)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, pattern: str) -> str:
        """The first group of what its output says. Raises CannotShoot when it ends or takes too long."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            output = self.log.read_text(encoding="utf-8", errors="replace")
            if match := re.search(pattern, output):
                return match[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        raise CannotShoot(f"manage.py {self.command} did not start:\n{self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(25)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def servers(folder: Path, *, with_large: bool) -> Iterator[dict[str, Server]]:
    started: dict[str, Server] = {}
    try:
        started["demo"] = Server(folder / "demo", "demo", "--port", "0")
        started["empty"] = Server(folder / "empty", "up", "--port", "0")
        if with_large:
            started["large"] = Server(folder / "large", "demo", "--port", "0", "--nodes", str(LARGE))
        yield started
    finally:
        for server in started.values():
            server.stop()


def values_of(demo: Server) -> dict[str, str]:
    demo.wait_for(r"(URL, tokens and passwords)")
    text = (demo.folder / "demo.env").read_text(encoding="utf-8")
    return dict(line.split("=", 1) for line in text.splitlines())


# ── What the demo calls its things ────────────────────────────────────────────────────────────────────────────────────
def places_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The {places} of paths, looked up over REST as an administrator could."""

    def rows(path: str) -> list[dict[str, Any]]:
        request = urllib.request.Request(  # noqa: S310  a loopback address of our own server
            f"{values['SETPOINT_URL']}/api/v1/{path}",
            headers={"Authorization": f"Bearer {values['SETPOINT_TOKEN_OPERATOR']}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            results: list[dict[str, Any]] = json.load(answer)["results"]
        return results

    clusters = {row["name"]: row["id"] for row in rows("clusters")}
    pools = {row["name"]: row for row in rows("pools?limit=100")}
    plans = rows("plans?limit=100")
    review = {row["pool_name"]: row["number"] for row in plans if row["status"] == "review"}
    rollouts = rows("rollouts?limit=100")
    failed = next(row for row in rollouts if row["status"] in ("failed", "stopped"))
    steps = rows(f"rollouts/{failed['id']}/steps?limit=100")
    return {
        "atlas": clusters["atlas-training"],
        "cirrus": clusters["cirrus-dev"],
        "dune": clusters["dune-edge"],
        "job": rows("gpus/jobs?name=llm-pretrain&cluster=atlas-training")[0]["id"],
        "drifted": rows("nodes?name=atlas-training-gpu-019")[0]["id"],
        "pool": pools["train-rdma"]["id"],
        "reboots": review["train-rdma"],
        "upgrade": review["serving"],
        "large": review.get("pretrain", review["train-rdma"]),
        "rule": rows("approval-rules")[0]["id"],
        "failed": failed["number"],
        "succeeded": next(row["number"] for row in rollouts if row["status"] == "succeeded"),
        "step": next(row["id"] for row in steps if row["status"] == "failed"),
    }


# ── The camera ────────────────────────────────────────────────────────────────────────────────────────────────────────
class Camera:
    """One browser, and a logged-in state for each server and person."""

    def __init__(self, chromium: Any, late: type[Exception], target: Path, looks: Sequence[str]) -> None:
        self.chromium, self.late, self.target, self.looks = chromium, late, target, looks
        self._states: dict[tuple[str, str], Any] = {}
        self.complaints: list[str] = []

    def state(self, url: str, person: str, password: str) -> Any:
        if (url, person) not in self._states:
            context = self.chromium.new_context()
            page = context.new_page()
            page.goto(f"{url}/login/")
            page.fill("#id_email", f"{person}@example.com")
            page.fill("#id_password", password)
            page.click("button:has-text('Log in')")
            page.wait_for_url(f"{url}/")
            self._states[url, person] = context.storage_state()
            context.close()
        return self._states[url, person]

    def take(self, shots: list[tuple[Shot, str, str]], url: str, values: Mapping[str, str]) -> None:
        """Each (shot, path, name of its files), in all looks. One context a person and look: pages come warm."""
        for person in dict.fromkeys(shot.by for shot, _, _ in shots):
            password = values.get(f"SETPOINT_PASSWORD_{person.upper()}", "")
            state = self.state(url, person, password) if person else None
            for look in self.looks:
                width, theme = LOOKS[look]
                context = self.chromium.new_context(
                    viewport={"width": width, "height": 900}, color_scheme=theme, storage_state=state
                )
                page = context.new_page()
                page.on("pageerror", lambda error: self.complaints.append(str(error)))
                for shot, path, name in shots:
                    if shot.by == person:
                        self.photograph(page, url + path, f"{name}-{look}", width)
                context.close()

    def photograph(self, page: Any, address: str, name: str, width: int) -> None:
        page.set_viewport_size({"width": width, "height": 900})
        answer = page.goto(address)
        if answer is None or answer.status != 200:
            self.complaints.append(f"{name}: {address} answers {answer.status if answer else 'nothing'}")
            return
        page.evaluate("document.fonts.ready")
        if page.locator(".swagger-ui").count():
            page.wait_for_selector(".swagger-ui .opblock, .swagger-ui .info")
        with suppress(self.late):
            page.wait_for_load_state("networkidle", timeout=2000)
        page.set_viewport_size({"width": width, "height": TALLEST})
        if not until(page, NOTHING_COMES, 5):
            self.complaints.append(f"{name}: a part that loads when it is seen has not come")
        page.set_viewport_size({"width": width, "height": 900})  # what fills the window is no higher than one
        high = min(TALLEST, max(page.evaluate("document.documentElement.scrollHeight"), 600))
        sticks_out = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        if sticks_out:
            self.complaints.append(f"{name}: sticks out to the right")
        page.set_viewport_size({"width": width, "height": high})  # the side bar ends where the picture does
        session = page.context.new_cdp_session(page)
        for quality in QUALITIES:
            shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": quality})
            data = base64.b64decode(shot["data"])
            if len(data) <= SHARE:
                break
        session.detach()
        (self.target / f"{name}.webp").write_bytes(data)


# ── The index ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def index(target: Path) -> str:
    """docs/screenshots.md: only files that are there."""
    lines = ["# Every page", "", f"Taken from the demo by `make screenshots`; cut at {TALLEST:,} px."]
    for shot in SHOTS:
        for suffix, title in (("", shot.title), ("-5000", f"{shot.title}, with 5,000 nodes")):
            name = f"{shot.file}{suffix}-{KEPT}.webp"
            if (target / name).exists():
                lines += ["", f"## {title}", "", shot.says, "", f"![{title}](screenshots/{name})"]
    return "\n".join(lines) + "\n"


def chosen(only: str) -> list[Shot]:
    return [shot for shot in SHOTS if re.search(only, shot.file)]


def shoot(target: Path, only: str, looks: Sequence[str], *, with_large: bool) -> list[str]:
    """Takes them all into `target`; what was wrong with pages."""
    from playwright.sync_api import TimeoutError as Late
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        raise CannotShoot("no Chromium: apt-get install chromium")
    shots = chosen(only)
    folder = Path(tempfile.mkdtemp(prefix="setpoint-shots-"))
    try:
        with servers(folder, with_large=with_large) as started, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            camera = Camera(browser, Late, target, looks)
            values = values_of(started["demo"])
            places = places_of(values) | equip(started["demo"].folder, values)
            ordinary = [
                (shot, shot.path.format(**places), shot.file)
                for shot in shots
                if "{token}" not in shot.path and shot.name != "jobs-plan-thousands"
            ]
            camera.take(ordinary, values["SETPOINT_URL"], values)
            first = started["empty"].wait_for(r"(http\S+/setup/\?token=\S+)")
            url, _, token = first.partition("/setup/?token=")
            setup = [(shot, shot.path.format(token=token), shot.file) for shot in shots if "{token}" in shot.path]
            camera.take(setup, url, {})
            if with_large:
                values = values_of(started["large"])
                places = places_of(values)
                large = [(shot, shot.path.format(**places), f"{shot.file}-5000") for shot in shots if shot.large]
                camera.take(large, values["SETPOINT_URL"], values)
            browser.close()
            return camera.complaints
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Files whose name fits this expression; the index stays as it is.")
    parser.add_argument("--into", type=Path, default=TARGET, help="Another folder, to look at first.")
    parser.add_argument("--without-large", action="store_true", help="Leave out the pages with 5,000 nodes.")
    parser.add_argument("--looks", default=KEPT, help=f"Of {', '.join(LOOKS)}; docs/screenshots keeps {KEPT}.")
    options = parser.parse_args()
    looks = options.looks.split(",")
    if not set(looks) <= set(LOOKS) or (options.into == TARGET and looks != [KEPT]):
        parser.error(f"--looks: {KEPT} into docs/screenshots, or any of {', '.join(LOOKS)} --into another folder")
    began = time.monotonic()
    fresh = Path(tempfile.mkdtemp(prefix="setpoint-taken-"))
    try:
        complaints = shoot(fresh, options.only, looks, with_large=not options.without_large)
        taken = sorted(fresh.glob("*.webp"))
        options.into.mkdir(parents=True, exist_ok=True)
        if not options.only and not complaints:  # what is left of pages that are gone
            for old in options.into.glob("*.webp"):
                old.unlink()
        for file in taken:
            shutil.copyfile(file, options.into / file.name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    size = sum(file.stat().st_size for file in options.into.glob("*.webp"))
    if options.into == TARGET and not options.only:
        INDEX.write_text(index(TARGET), encoding="utf-8")
    if options.into == TARGET and size > BUDGET:
        complaints.append(f"{size:,} bytes are more than {BUDGET:,}")
    seconds = time.monotonic() - began
    print(f"{len(taken)} pictures, {size / 1e6:.1f} MB in all, {seconds:.0f} s", *complaints, sep="\n  ")  # noqa: T201
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
