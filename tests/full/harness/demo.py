"""`make demo` as a newcomer runs it, in a folder of its own and at a free port."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
READY_SECONDS = 600.0
"""From the command to the page, with a warm package cache, on a machine that does ten other things."""


class Demo:
    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.file = folder / "demo.env"
        self.log = folder / "output"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
        clean["SETPOINT_VAR"] = str(folder)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["make", "demo", f"PORT={port or free_port()}"],
                cwd=ROOT, env=clean, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def values(self) -> dict[str, str]:
        until = time.monotonic() + READY_SECONDS
        while not self.file.exists():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.2)
        return dict(line.split("=", 1) for line in self.file.read_text().splitlines())

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Stop the demo like Ctrl-C: the signal goes to make and its children. Returns when none of them is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        status = self.process.wait(30)
        until = time.monotonic() + 30
        while self._is_left():  # make, asked twice, does not wait for what it runs
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)
        return status

    def _is_left(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True
