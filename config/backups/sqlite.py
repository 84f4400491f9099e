"""SQLite's databases: copied by its online backup, which is consistent while others write, and put back by the same,
which is one transaction of the database that is replaced."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from django.db import connection

from config.backups import BackupRefused

BUSY_SECONDS = 20.0


def dump(to: Path) -> str:
    """Copy the database, as of one moment. Returns the schema's name: none. Raises BackupRefused."""
    try:
        with closing(_open(_database(), "ro")) as source, closing(sqlite3.connect(to)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
        _check(to)
    except sqlite3.Error as error:
        raise BackupRefused(f"The database cannot be read: {error}.") from error
    return ""


def restore(content: Path, hold: Callable[[str], str]) -> None:
    """Replace the database by this one, with the statement of `hold` carried out in it first. Raises BackupRefused.

    The copy is complete and checked before the database is touched; killed in between, that stays as it was.
    """
    try:
        _check(content)
        with closing(sqlite3.connect(content)) as copy:
            copy.execute(hold(""))
            copy.commit()
        connection.close()
        with closing(_open(content, "ro")) as copy, closing(_open(_database(), "rw")) as target:
            copy.backup(target)
    except sqlite3.Error as error:
        raise BackupRefused(f"Nothing was restored: {error}.") from error


def _check(file: Path) -> None:
    """Raises sqlite3.Error."""
    with closing(_open(file, "ro")) as opened:
        verdict = opened.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != ("ok",):
        raise sqlite3.DatabaseError(f"the copy is damaged: {verdict}")


def _database() -> Path:
    return Path(connection.settings_dict["NAME"])


def _open(file: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS)
