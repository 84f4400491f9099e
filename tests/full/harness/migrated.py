"""The data directory of a PostgreSQL whose database is migrated, made once for these migrations.

Some twenty modules of the full tier have a server of their own; each copies it instead of migrating for eight seconds.
Migrations from an empty database are tried by tests/full/deployment and by the run's own database.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests import template_database
from tests.full.harness.processes import AUDIT_KEY, Installation
from tests.full.harness.servers import Postgres, postgres_binaries

KEPT = 2
"""50 MB each: of the state of the migrations before this one, for a branch."""


@cache
def data() -> Path | None:
    """Return the directory, of a server that is stopped. None where it cannot be kept: the caller's is then empty."""
    folder = template_database.folder()
    if folder is None:
        return None
    wanted = folder / f"{template_database.digest(f'{postgres_binaries()} {AUDIT_KEY}')}.pgdata"
    with (folder / ".lock").open("w") as lock:  # of two test processes one makes it, the other waits and finds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.is_dir():
            _make(wanted)
        os.utime(wanted)
        for old in sorted(folder.glob("*.pgdata"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return wanted


def _make(wanted: Path) -> None:
    with Postgres() as server:
        with Installation(server.url, "redis://127.0.0.1:1/0") as setpoint:
            setpoint.migrate()
        server.stop()
        beside = Path(tempfile.mkdtemp(prefix="making-", dir=wanted.parent))
        shutil.copytree(server.folder / "data", beside, dirs_exist_ok=True)
        beside.rename(wanted)  # whole or not at all
