"""Environment of the demo's process, set before Django reads its settings.

A demo throws its database away at every start. It must therefore never see a real installation's variables: all of
SETPOINT_* is dropped, and the data lives in a folder of its own below var/.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent.parent
MARK = "SETPOINT_DEMO"
"""Set by `enter` to the demo's folder. Without it the command refuses: it would throw away a real database."""
KEPT = ("SETPOINT_VAR", "SETPOINT_LOG_LEVEL", "SETPOINT_LOG_FORMAT")
LOOPBACK = "127.0.0.0/8"
GLASS_CLASS = "drain"
"""Break-glass is on, unlike in a new installation: the history has a use of it."""
SETTLE_MINUTES = "5"
"""Simulated jobs are at full speed at once; a visitor sees within forty minutes of a rollout what it did."""


def enter(environ: MutableMapping[str, str] = os.environ) -> Path:
    """Make this process the demo's; call it before Django. Returns the demo's folder.

    SETPOINT_VAR, where given, is the folder in which `demo/` and `demo.env` are made instead of var/.
    """
    base = Path(environ.get("SETPOINT_VAR") or BASE_DIR / "var").resolve()
    for name in [name for name in environ if name.startswith("SETPOINT_") and name not in KEPT]:
        del environ[name]
    folder = base / "demo"
    environ["SETPOINT_VAR"] = environ[MARK] = str(folder)
    environ["SETPOINT_ALLOW_NETWORKS"] = LOOPBACK
    environ["SETPOINT_STUDY_SETTLE_MINUTES"] = SETTLE_MINUTES
    environ["SETPOINT_BREAK_GLASS_CLASS"] = GLASS_CLASS
    environ.setdefault("SETPOINT_LOG_FORMAT", "console")
    environ.setdefault("SETPOINT_LOG_LEVEL", "ERROR")  # a lost cluster would warn every few seconds
    return folder
