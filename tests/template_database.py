"""A migrated SQLite database, made once for these migrations and copied for each test process.

Migrating takes seconds, and every run of a single test would wait for them. SQLite is migrated wherever migrations,
Django or SQLite are others than those of the template: on a fresh machine, always. PostgreSQL has a template of its
own kind, tests/full/harness/migrated.py.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import django
import pytest
from django.apps import apps
from django.conf import settings

KEPT = 5
"""Templates of other states of the migrations: branches that are worked on in turns."""


def template() -> Path | None:
    """Return the template's path, existing or not. None: not on SQLite, or another party owns the folder."""
    if not settings.DATABASES["default"]["ENGINE"].endswith("sqlite3") or (kept := folder()) is None:
        return None
    return kept / f"{digest(f'{sqlite3.sqlite_version} {settings.SETPOINT_AUDIT_KEY}')}.sqlite3"


def folder() -> Path | None:
    """Return where templates are kept. None: another party owns it."""
    made = Path(tempfile.gettempdir(), f"setpoint-test-databases-{os.getuid()}")
    made.mkdir(mode=0o700, exist_ok=True)
    stat = made.lstat()
    return None if made.is_symlink() or stat.st_uid != os.getuid() or stat.st_mode & 0o077 else made


def digest(of: str) -> str:
    """Return a hash of all migrations, of Django's version and of what else decides how a migrated database looks."""
    known = hashlib.sha256(f"{django.VERSION} {of}".encode())
    for app in sorted(apps.get_app_configs(), key=lambda app: app.label):
        for path in sorted(Path(app.path, "migrations").glob("*.py")):
            known.update(f"{app.label}/{path.name}\n".encode() + path.read_bytes())
    return known.hexdigest()


def copied(source: Path, to: Path) -> None:
    """Whole or not at all, also while others read or write there."""
    beside = to.with_name(f"{to.name}.{os.getpid()}")
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(beside)) as other:
        original.backup(other)
    beside.replace(to)


@pytest.fixture(scope="session")
def django_db_keepdb(
    request: pytest.FixtureRequest, django_db_modify_db_settings: None, django_db_use_migrations: bool
) -> bool:
    """Return whether Django finds a migrated database in place: a copy of the template."""
    path = template() if django_db_use_migrations else None
    if request.config.option.reuse_db or path is None or not path.is_file():
        return bool(request.config.option.reuse_db)
    copied(path, _database())
    os.utime(path)
    return True


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_keepdb: bool, django_db_use_migrations: bool) -> None:
    """Set up databases as pytest-django does; what was migrated just now becomes the template.

    With --no-migrations nothing was: the tables are there, but no record that they are, and the next run would fail.
    """
    wanted = template() if django_db_use_migrations else None
    if wanted is None or wanted.is_file():
        return
    copied(_database(), wanted)
    for old in sorted(wanted.parent.glob("*.sqlite3"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)


def _database() -> Path:
    test: dict[str, Any] = settings.DATABASES["default"]["TEST"]
    return Path(test["NAME"])
