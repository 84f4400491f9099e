"""Settings for tests: the product's own, in a directory that is thrown away, on a database that is thrown away.

Imported by pytest-django before any conftest, in every process (each xdist worker has a directory of its own). No
SETPOINT_* that a developer has exported may reach the tests, but those that KEPT names.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

gc.disable()
"""Loading the product makes half a million objects that last, and walking them took a quarter of a process's start.
tests/conftest.py looks for garbage again once all is collected."""

KEPT = (
    "SETPOINT_TEST_", "SETPOINT_CACHE", "SETPOINT_KEEP_PLANE", "SETPOINT_CHARTS", "SETPOINT_ALL_CHARTS",
    "SETPOINT_NODE_",
)  # fmt: skip
"""SETPOINT_CACHE says where the test control plane was built, SETPOINT_CHARTS where real charts lie, and
SETPOINT_ALL_CHARTS that all are tried, and with both helms."""
for _name in [name for name in os.environ if name.startswith("SETPOINT_") and not name.startswith(KEPT)]:
    del os.environ[_name]

_VAR = Path(tempfile.mkdtemp(prefix="setpoint-test-"))
_OWNER = os.getpid()


def _remove() -> None:
    if os.getpid() == _OWNER:  # a forked child inherits the hook, not the directory
        shutil.rmtree(_VAR, ignore_errors=True)


atexit.register(_remove)
os.environ["SETPOINT_VAR"] = str(_VAR)
os.environ["SETPOINT_DATABASE_URL"] = os.environ.get("SETPOINT_TEST_DATABASE_URL") or f"sqlite:///{_VAR}/dev.sqlite3"

from config.settings import *  # noqa: E402, F403
from config.settings import DATABASES  # noqa: E402

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, not :memory:, so that threads of one test see one database, as in production.
    DATABASES["default"]["TEST"] = {"NAME": str(_VAR / "test.sqlite3")}
elif _template := os.environ.get("SETPOINT_TEST_TEMPLATE"):
    # A migrated database of the server, which tests/run.py names: what is to be migrated is what it lacks.
    DATABASES["default"]["TEST"] = {"TEMPLATE": _template}

SETPOINT_AUDIT_HEADS_FILE = ""
SETPOINT_AUDIT_KEY = "the same in each process: rows of the template database carry its marks"
"""Each test begins a chain of its own: the one before it would contradict it."""

# The product's hasher takes 0.2 s a password by design; tests make hundreds of people.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# Every test client builds the middleware again, and WhiteNoise would read all static files each time.
WHITENOISE_AUTOREFRESH = True
