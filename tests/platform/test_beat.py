"""The beat process of production ends by a SIGTERM, wherever it is met."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SWALLOWED = """
import os, signal
from celery.apps.beat import Beat
from celery.beat import PersistentScheduler
from config.celery import app

class Scheduler(PersistentScheduler):
    def tick(self):
        try:
            os.kill(os.getpid(), signal.{signal})
            sum(range(1000))  # the handler runs here
        except SystemExit:
            print("swallowed", flush=True)
        return super().tick()

Beat(app=app, schedule={schedule!r}, scheduler_cls=Scheduler, quiet=True).run()
"""
"""What a destructor, a callback of C code or a bare `except` does to the exception that Celery's handler raises."""


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_beat_ends_in_order_even_where_the_exception_of_its_stop_is_swallowed(tmp_path: Path, signal: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SETPOINT_", "DJANGO_"))}
    environment |= {"SETPOINT_VAR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED.format(signal=signal, schedule=str(tmp_path / "schedule"))],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.stdout.count("swallowed") == 1, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
