"""A whole Setpoint through a PgBouncer in transaction mode that has three sessions for all of its connections."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from config.management.commands.migrate import LOCK
from tests.full.harness import base_environment
from tests.full.harness.client import ALL_SCOPES, Person, eventually
from tests.full.harness.processes import ROOT, Installation
from tests.full.harness.servers import PgBouncer, Postgres, Redis
from tests.full.harness.site import PASSWORD

pytestmark = pytest.mark.full
POOLED = {"SETPOINT_DATABASE_POOLER": "transaction", "SETPOINT_SWEEP_SECONDS": "1"}
HOLD = """
import sys, django
django.setup()
from django.core.management.base import OutputWrapper
from django.db import connection
from config.management.commands.migrate import one_at_a_time
with one_at_a_time(connection, OutputWrapper(sys.stdout)):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""


@pytest.fixture(scope="module")
def setpoint(pgbouncer: PgBouncer, redis_server: Redis) -> Iterator[Installation]:
    with Installation(pgbouncer.url, redis_server.url, POOLED) as installation:
        yield installation


def test_it_migrates_runs_and_seals_through_the_pooler(setpoint: Installation, postgres: Postgres) -> None:
    setpoint.migrate()
    setpoint.environment["SETPOINT_ADMIN_PASSWORD"] = PASSWORD
    setpoint.manage("createadmin", "admin@example.com")
    setpoint.start("web", "worker", "helm", "gpus", "beat", "watch")
    admin = Person(setpoint.url, "admin@example.com")
    admin.log_in(PASSWORD, ALL_SCOPES)
    for n in range(20):
        admin.post("users", {"email": f"p-{n}@example.com"})
    assert len(admin.every("users")) == 21
    eventually(lambda: "whole: head" in sealed(setpoint), lambda: sealed(setpoint) + setpoint.log("worker"))
    with psycopg.connect(postgres.url) as look:
        sessions = look.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = 'setpoint' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert sessions is not None
    assert 0 < sessions[0] <= PgBouncer.SESSIONS
    for name in ("web", "worker", "helm", "gpus", "beat", "watch"):
        assert setpoint.is_running(name)
        for defect in ("does not exist", "DuplicatePreparedStatement", "unsupported startup parameter"):
            assert defect not in setpoint.log(name, characters=10**6), name


def test_the_lock_of_a_migration_holds_through_the_pooler_and_ends_with_its_process(
    setpoint: Installation, postgres: Postgres
) -> None:
    first = holder(setpoint)
    assert line(first) == "held"
    with psycopg.connect(postgres.url) as look:  # as a migration holds it that reaches the database directly
        assert look.execute("SELECT pg_try_advisory_lock(%s)", [LOCK]).fetchone() == (False,)
    second = holder(setpoint)
    assert line(second).startswith("Another migration of this database is running.")
    first.kill()
    first.wait(60)
    assert line(second) == "held"
    third = holder(setpoint)
    assert line(third).startswith("Another migration")
    second.communicate("\n", timeout=60)
    assert line(third) == "held"
    third.communicate("\n", timeout=60)
    assert third.returncode == 0


def test_a_pooler_that_was_not_told_of_is_named_with_what_to_set(pgbouncer: PgBouncer, redis_server: Redis) -> None:
    with Installation(pgbouncer.url, redis_server.url) as untold:
        assert "SETPOINT_DATABASE_POOLER=transaction" in untold.attempt("doctor").stdout


def sealed(setpoint: Installation) -> str:
    """Return what a reading of all records says, which is done with a cursor."""
    done = setpoint.attempt("verify_audit")
    return done.stdout + done.stderr


def holder(setpoint: Installation) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(base_environment.programs() / "python"), "-c", HOLD],
        cwd=ROOT,
        env={**setpoint.environment, "DJANGO_SETTINGS_MODULE": "config.settings"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
