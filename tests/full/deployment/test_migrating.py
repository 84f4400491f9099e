"""Two migrations of one database at once, as two Jobs of an orchestrator: one waits, and a killed one blocks none."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from config.management.commands.migrate import LOCK
from tests.full.harness import base_environment
from tests.full.harness.processes import ROOT, Installation
from tests.full.harness.servers import Postgres

PATIENCE_SECONDS = 180.0
HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = %s"


@pytest.fixture
def fresh() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def migration(setpoint: Installation, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(base_environment.programs() / "python"), "manage.py", "migrate", "--no-input", *arguments],
        cwd=ROOT,
        env=setpoint._environment("migrate"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=PATIENCE_SECONDS)[0]


def until(what: Callable[[], bool], says: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, says
        time.sleep(0.05)


def test_of_two_migrations_at_once_each_step_is_made_by_one(fresh: Postgres) -> None:
    with Installation(fresh.url, "redis://127.0.0.1:1/0") as setpoint:
        processes = [migration(setpoint) for _ in range(2)]
        texts = [output(process) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], "\n".join(texts)
        assert sum("Applying accounts.0001_initial... OK" in text for text in texts) == 1
        assert setpoint.attempt("migrate", "--check").returncode == 0


def test_a_migration_waits_until_the_one_that_runs_is_killed_and_what_only_reads_does_not(fresh: Postgres) -> None:
    with Installation(fresh.url, "redis://127.0.0.1:1/0") as setpoint, psycopg.connect(fresh.url) as look:
        look.autocommit = True

        def is_held() -> bool:
            return bool(look.execute(HELD, [LOCK]).fetchone()[0])  # type: ignore[index]

        look.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        assert setpoint.attempt("migrate", "--check").returncode == 1, "an empty database has migrations to come"
        first = migration(setpoint)
        assert first.stdout is not None
        assert "Another migration of this database is running" in first.stdout.readline()
        look.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        until(is_held, "the first migration never took the lock")
        first.kill()
        output(first)
        second = migration(setpoint)
        text = output(second)
        assert second.returncode == 0, text
        until(lambda: not is_held(), "a migration that has ended holds the lock")
        assert setpoint.attempt("migrate", "--check").returncode == 0
