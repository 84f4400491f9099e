"""`manage.py backup`, `restore` and `doctor` on PostgreSQL, with Setpoint's processes as production starts them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.full.harness.client import eventually
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis

pytestmark = pytest.mark.full

ROLES = ("setpoint_owner", "setpoint_app")


@pytest.fixture(scope="module")
def databases() -> Iterator[Postgres]:
    with Postgres() as server:
        run(server.url, "CREATE ROLE setpoint_owner LOGIN CREATEROLE PASSWORD 'o'")
        run(server.url, "CREATE DATABASE two_roles OWNER setpoint_owner")
        yield server


@pytest.fixture(scope="module")
def installation(databases: Postgres, redis_server: Redis) -> Iterator[Installation]:
    """Everything that serves is the application's role; backup and restore are the owner's."""
    base = f"postgresql://{{}}:o@127.0.0.1:{databases.port}/two_roles"
    owner, application = (base.format(role) for role in ROLES)
    with Installation(application, redis_server.url, owner_url=owner) as made:
        made.migrate()
        yield made


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        return list(cursor) if cursor.description else []


def rows(databases: Postgres, statement: str) -> list[tuple[object, ...]]:
    return run(f"{databases.url.rpartition('/')[0]}/two_roles", statement)


def as_owner(installation: Installation, *arguments: str) -> str:
    """Carry out a command with the variables of `migrate`."""
    before = dict(installation.environment)
    installation.environment |= installation._owners
    try:
        done = installation.attempt(*arguments)
    finally:
        installation.environment.clear()
        installation.environment.update(before)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def findings(installation: Installation, area: str) -> dict[str, list[str]]:
    document = json.loads(installation.attempt("doctor", "--json").stdout)
    return {
        state: [f["text"] for f in document["findings"] if (f["area"], f["state"]) == (area, state)]
        for state in ("ok", "warning", "problem")
    }


@contextmanager
def at_work(installation: Installation) -> Iterator[None]:
    """Run all processes but the web's, from when each of them has been heard of."""
    names = ("worker", "helm", "gpus", "beat", "watch")
    installation.start(*names)
    try:
        eventually(
            lambda: not findings(installation, "processes")["problem"], lambda: findings(installation, "processes")
        )
        yield
    finally:
        for name in names:
            if installation.is_running(name):
                installation.stop(name)


def test_a_backup_comes_back_with_roles_triggers_and_the_hold(
    installation: Installation, databases: Postgres, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tgz"
    rows(databases, "INSERT INTO jobs_freeze (reason, created_at) VALUES ('kept', now())")
    as_owner(installation, "backup", str(file))
    rows(databases, "UPDATE jobs_freeze SET reason = 'changed'")
    rows(databases, "CREATE TABLE of_a_newer_version (id int)")

    as_owner(installation, "restore", str(file), "--replace")
    reasons = [str(reason) for (reason,) in rows(databases, "SELECT reason FROM jobs_freeze ORDER BY id")]
    assert reasons[0] == "kept"
    assert reasons[1].startswith("Restored from the backup")
    assert not rows(databases, "SELECT 1 FROM pg_tables WHERE tablename = 'of_a_newer_version'")
    assert not findings(installation, "database")["problem"], "the triggers are there"
    assert not findings(installation, "database")["warning"], "the application's role has its rights, and no more"


def test_a_restore_that_fails_has_changed_nothing(
    installation: Installation, databases: Postgres, tmp_path: Path
) -> None:
    """The last statement of the transaction fails: something keeps the hold from being written."""
    file = tmp_path / "backup.tgz"
    rows(databases, "ALTER TABLE jobs_freeze ADD CONSTRAINT no_hold CHECK (reason NOT LIKE 'Restored from%') NOT VALID")
    as_owner(installation, "backup", str(file))
    rows(databases, "ALTER TABLE jobs_freeze DROP CONSTRAINT no_hold")
    rows(databases, "UPDATE jobs_freeze SET reason = 'newer' WHERE reason = 'kept'")
    before = rows(databases, "SELECT id, reason FROM jobs_freeze ORDER BY id")
    with pytest.raises(RuntimeError, match="psql"):
        as_owner(installation, "restore", str(file), "--replace")
    assert rows(databases, "SELECT id, reason FROM jobs_freeze ORDER BY id") == before


@pytest.mark.long
def test_without_the_programs_it_says_what_is_missing(installation: Installation, tmp_path: Path) -> None:
    path = installation.environment["PATH"]
    installation.environment["PATH"] = str(tmp_path)
    try:
        done = installation.attempt("backup", str(tmp_path / "b.tgz"))
    finally:
        installation.environment["PATH"] = path
    assert done.returncode == 1
    assert "pg_dump" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_doctor_sees_workers_come_and_go_and_triggers_vanish(installation: Installation, databases: Postgres) -> None:
    assert len(findings(installation, "broker")["problem"]) == 3
    with at_work(installation):
        eventually(lambda: not findings(installation, "broker")["problem"], lambda: findings(installation, "broker"))
        installation.stop("helm")
        assert ["helm" in text for text in findings(installation, "broker")["problem"]] == [True]

    rows(databases, "ALTER TABLE audit_seal DISABLE TRIGGER audit_seal_append_only")
    assert ["audit_seal" in text for text in findings(installation, "database")["problem"]] == [True]
    rows(databases, "ALTER TABLE audit_seal ENABLE TRIGGER audit_seal_append_only")


def test_a_database_that_processes_work_on_is_not_replaced(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "backup.tgz"
    as_owner(installation, "backup", str(file))
    with at_work(installation), pytest.raises(RuntimeError, match="processes"):
        as_owner(installation, "restore", str(file), "--replace")
