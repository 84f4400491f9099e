"""A virtual environment with requirements/base.txt and nothing else: what the server image has.

Setpoint's own processes run from it in the full tier. The tests' environment holds packages that production lacks: a
process that needs one of those would start here and nowhere else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
INSTALL_SECONDS = 1200
"""A judgment: 60 packages over a slow line."""


@cache
def programs() -> Path:
    """The environment's bin/, made on first use and kept by the hash of what it holds. Raises RuntimeError."""
    held = (ROOT / "requirements" / "base.txt").read_bytes() + sys.version.encode() + sys.base_prefix.encode()
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "setpoint"
    parent = Path(os.environ.get("SETPOINT_CACHE") or default) / "base"
    folder = parent / hashlib.sha256(held).hexdigest()[:16]
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / ".lock").open("w") as lock:  # of two test processes one installs, the other waits and finds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".installed-base").exists():
            _install(folder)
    return folder / "bin"


def _install(folder: Path) -> None:
    done = subprocess.run(
        ["make", f"VENV={folder}", f"PYTHON={sys.executable}", f"{folder}/.installed-base"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"requirements/base.txt cannot be installed: {done.stdout}{done.stderr}")
