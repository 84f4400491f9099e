"""Objects loaded when a process begins to serve are excluded from every later garbage collection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOK = """
import gc
from config.wsgi import application
from clusters import models
from clusters.web import views
print(gc.get_freeze_count(), sum(thing is models.Node for thing in gc.get_objects()), gc.get_threshold()[0])
"""


def test_a_web_process_freezes_what_it_has_loaded(tmp_path: Path) -> None:
    environment = os.environ | {"SETPOINT_VAR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "-c", LOOK]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    frozen, still_walked, threshold = map(int, done.stdout.split())
    assert frozen > 100_000, "models and views were loaded before"
    assert still_walked == 0
    assert threshold > 700
