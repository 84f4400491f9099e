"""The data directory of a PostgreSQL whose database is migrated, made once for these migrations.

Some twenty modules of the full tier have a server of their own; each copies it instead of migrating for eight seconds.
So does the run's own server, whose test databases are copies of that one's database: `python -m
tests.full.harness.migrated` prints the directory for it, or nothing. Migrations from an empty database are tried by
tests/full/deployment, and where the directory is made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import django
from django.conf import settings

from tests import template_database
from tests.full.harness.processes import AUDIT_KEY, Installation
from tests.full.harness.servers import Postgres, postgres_binaries

KEPT = 4
"""50 MB each: two of a state of the migrations, and those of the state before, for a branch."""


@cache
def data(audit_key: str = AUDIT_KEY) -> Path | None:
    """Return the directory, of a server that is stopped. None where it cannot be kept: the caller's is then empty.

    `audit_key`: rows of the migrations carry its marks.
    """
    folder = template_database.folder()
    if folder is None:
        return None
    wanted = folder / f"{template_database.digest(f'{postgres_binaries()} {audit_key}')}.pgdata"
    with (folder / ".lock").open("w") as lock:  # of two test processes one makes it, the other waits and finds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.is_dir():
            _make(wanted, audit_key)
        os.utime(wanted)
        for old in sorted(folder.glob("*.pgdata"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return wanted


def _make(wanted: Path, audit_key: str) -> None:
    with Postgres() as server:
        keys = {"SETPOINT_AUDIT_KEY": audit_key}
        with Installation(server.url, "redis://127.0.0.1:1/0", keys) as setpoint:
            setpoint.migrate()
        server.stop()
        beside = Path(tempfile.mkdtemp(prefix="making-", dir=wanted.parent))
        shutil.copytree(server.folder / "data", beside, dirs_exist_ok=True)
        beside.rename(wanted)  # whole or not at all


if __name__ == "__main__":  # by tests.run, which has no Django itself
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    print(data(settings.SETPOINT_AUDIT_KEY) or "")
