"""PostgreSQL's databases, by its own programs: pg_dump's custom format, and a restore that is one transaction.

The backup is turned into a script first, all of it; then psql carries out, in a single transaction, what removes the
old tables, the script, and the hold on rollouts. Owners and rights are no part of it: the role that restores owns the
tables, and `migrate` grants the application's role its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from django.db import connection

from config.backups import BackupRefused

LONGEST_MESSAGE = 600
SERVICE = "setpoint"
LONGEST_BEGINNING = 8192
SETTING = re.compile(rb"^SET (\w+) = ", re.MULTILINE)
OBJECT = re.compile(rb"^(?:CREATE|ALTER|COMMENT|COPY)\b", re.MULTILINE)
EMPTY = """\
SET lock_timeout = '20s';
DO $$ DECLARE entry record; BEGIN
  FOR entry IN SELECT c.relname FROM pg_class c WHERE c.relkind IN ('r', 'p')
      AND c.relnamespace = current_schema()::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e') LOOP
    EXECUTE format('DROP TABLE IF EXISTS %I CASCADE', entry.relname);
  END LOOP;
  FOR entry IN SELECT c.relname FROM pg_class c WHERE c.relkind = 'S'
      AND c.relnamespace = current_schema()::regnamespace LOOP
    EXECUTE format('DROP SEQUENCE IF EXISTS %I CASCADE', entry.relname);
  END LOOP;
  FOR entry IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') LOOP
    EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', entry.name);
  END LOOP;
END $$;
"""
"""Nothing of an extension's is dropped."""


def schema() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return str(cursor.fetchone()[0])


def dump(to: Path) -> str:
    """Write the database, as of one moment, to a file. Returns the tables' schema. Raises BackupRefused."""
    _run("pg_dump", "--format=custom", f"--schema={schema()}", f"--file={to}", f"--dbname=service={SERVICE}")
    return schema()


def restore(content: Path, hold: Callable[[str], str]) -> None:
    """Replace all tables by those of the file, or nothing at all. Raises BackupRefused."""
    name, known = schema(), _settings()
    connection.close()  # its locks would be waited for
    folder = content.parent
    script, before, after = (folder / f"{part}.sql" for part in ("script", "before", "after"))
    before.write_text(EMPTY)
    after.write_text(hold(f'"{name}".') + ";\n")
    _run("pg_restore", "--no-owner", "--no-acl", "--exit-on-error", f"--file={script}", *_tables(content))
    leave_out_unknown_settings(script, known)
    options = ("--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", f"--dbname=service={SERVICE}")
    _run("psql", *options, *(f"--file={part}" for part in (before, script, after)))


def _settings() -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_settings")
        return frozenset(name for (name,) in cursor.fetchall())


def leave_out_unknown_settings(script: Path, known: Collection[str]) -> None:
    """Make comments of what a newer pg_restore sets and an older server does not know, such as transaction_timeout.

    In place, for a script is as large as the database: a comment is as long as the statement. Only what comes before
    the first object is looked at, for a function may hold lines that look the same.
    """
    with script.open("r+b") as file:
        beginning = OBJECT.split(file.read(LONGEST_BEGINNING), maxsplit=1)[0]
        for setting in SETTING.finditer(beginning):
            if setting[1].decode() not in known:
                file.seek(setting.start())
                file.write(b"--  ")


def _tables(content: Path) -> list[str]:
    """Return arguments that leave out the schema itself, which is there and may belong to another role."""
    listed = content.with_name("list")
    entries = _run("pg_restore", "--list", str(content)).splitlines(keepends=True)
    listed.write_text("".join(line for line in entries if " SCHEMA - " not in line))
    return [f"--use-list={listed}", str(content)]


def _run(program: str, *arguments: str) -> str:
    """Return the program's output. Raises BackupRefused with its complaint."""
    path = which(program)
    if path is None:
        raise BackupRefused(f"There is no {program}: install PostgreSQL's client programs of the server's version.")
    with _service() as environment:
        done = subprocess.run(  # noqa: S603  fixed programs, no shell; arguments are our own
            [path, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise BackupRefused(f"{program} ended with {done.returncode}: {_complaint(done.stderr)}")
    return done.stdout


def _complaint(text: str) -> str:
    lines: Sequence[str] = [line for line in text.strip().splitlines() if line.strip()]
    return " ".join(lines)[:LONGEST_MESSAGE] or "it gave no reason."


@contextmanager
def _service() -> Iterator[dict[str, str]]:
    """Yield an environment in which libpq connects as this process does: other accounts of the machine see arguments.

    The password is not in the file, which outlives a process that is killed.
    """
    row = connection.settings_dict
    names = {"dbname": row["NAME"], "user": row["USER"], "host": row["HOST"], "port": row["PORT"], **row["OPTIONS"]}
    lines = [f"{name}={value}" for name, value in names.items() if value not in ("", None)]
    password = {"PGPASSWORD": str(row["PASSWORD"])} if row["PASSWORD"] else {}
    handle, path = tempfile.mkstemp(prefix="setpoint-service-")  # mkstemp gives mode 0600
    try:
        with os.fdopen(handle, "w") as out:
            out.write("\n".join([f"[{SERVICE}]", *lines, ""]))
        yield {**os.environ, **password, "PGSERVICEFILE": path, "LC_ALL": "C"}
    finally:
        os.unlink(path)
