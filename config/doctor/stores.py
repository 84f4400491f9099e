"""Checks of database and broker, and of the processes that show themselves there."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from audit import database_roles
from config import health
from config.celery import app
from config.doctor.findings import Finding, ok, problem, warning
from config.standby import QUEUES

DATABASE, BROKER, PROCESSES = "database", "broker", "processes"
OLDEST_POSTGRESQL = 15
SMALLEST_FREE = 1024**3
"""Bytes on the disk of SQLite's file."""
REPLY_SECONDS = 3.0
"""Workers answer within milliseconds; a thread of a busy one may wait for the interpreter."""


def reachable() -> Finding:
    """Return whether the database answers at all: what other checks depend on."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        lines = str(error).strip().splitlines()
        return problem(
            DATABASE,
            f"The database does not answer: {lines[0][:300] if lines else type(error).__name__}.",
            advice_on(str(error)),
        )
    return ok(DATABASE, f"{_product()} answers.")


def advice_on(refusal: str) -> str:
    """Return what to do about a connection that failed with these words of libpq, a pooler or the server."""
    if "unsupported startup parameter" in refusal:
        return "Set SETPOINT_DATABASE_POOLER=transaction: this is PgBouncer, which takes no options of a connection."
    if "certificate verify failed" in refusal:
        return (
            "Let sslrootcert in SETPOINT_DATABASE_URL name the file with the CA that signed the server's certificate."
        )
    if "does not match host name" in refusal:
        return "Let SETPOINT_DATABASE_URL use the host name that the server's certificate is for, or have it reissued."
    if "is not read-write" in refusal or "session is read-only" in refusal:
        return "No host in SETPOINT_DATABASE_URL is the primary: promote one, or name it there."
    return "Start it, and see that SETPOINT_DATABASE_URL names it and that its role may log in."


def database() -> Iterator[Finding]:
    yield _version()
    yield _migrations()
    yield from _guards()
    yield from _space()


def _product() -> str:
    if connection.vendor == "postgresql":
        return "PostgreSQL " + ".".join(map(str, connection.get_database_version()))
    return f"SQLite {sqlite3.sqlite_version}"


def _version() -> Finding:
    if connection.vendor == "postgresql" and connection.get_database_version() < (OLDEST_POSTGRESQL,):
        return problem(
            DATABASE,
            f"This is {_product()}; Setpoint supports PostgreSQL {OLDEST_POSTGRESQL} or newer.",
            "Upgrade the database server.",
        )
    return ok(DATABASE, f"{_product()} is a supported version.")


def _migrations() -> Finding:
    executor = MigrationExecutor(connection)
    known = set(executor.loader.disk_migrations)
    ours = executor.loader.migrated_apps  # a table may hold rows of apps that were taken out
    newer = sorted(".".join(key) for key in set(executor.loader.applied_migrations) - known if key[0] in ours)
    if newer:
        return problem(
            DATABASE,
            f"The database has migrations that this version does not know: {', '.join(newer[:3])}.",
            "Run the version of Setpoint that migrated it, or restore a backup of this version.",
        )
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if pending:
        first = f"{pending[0][0].app_label}.{pending[0][0].name}"
        return problem(
            DATABASE, f"{len(pending)} migrations are not applied, the first is {first}.", "Run manage.py migrate."
        )
    return ok(DATABASE, f"All {len(executor.loader.applied_migrations)} migrations are applied.")


def _guards() -> Iterator[Finding]:
    """Look for the triggers that keep the audit record as it is on PostgreSQL; SQLite has none."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
            " WHERE relnamespace = current_schema()::regnamespace AND tgname = relname || '_append_only'"
            " AND tgenabled IN ('O', 'A')"
        )
        guarded = {str(row[0]) for row in cursor.fetchall()}
    if missing := sorted(set(database_roles.APPEND_ONLY) - guarded):
        yield problem(
            DATABASE,
            f"Triggers that keep the audit record from being changed are missing on {', '.join(missing)}.",
            "Run manage.py verify_audit, find out who removed them, and restore them from a backup's schema.",
        )
    else:
        yield ok(DATABASE, "The triggers that protect the audit record are active.")
    if database_roles.powers():
        yield warning(
            DATABASE,
            "The role of this connection could change the audit record.",
            "Let a second role serve: docs/operating.md, A role that cannot change the record.",
        )


def _space() -> Iterator[Finding]:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            size = int(cursor.fetchone()[0])
        yield ok(DATABASE, f"It uses {size / 1024**2:,.0f} MiB; PostgreSQL does not tell how much is free.")
        return
    folder = Path(connection.settings_dict["NAME"]).parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 1024**3:,.1f} GiB are free on the disk of the database."
    if free < SMALLEST_FREE:
        yield problem(DATABASE, text, "Make room: when the disk is full nothing is written and rollouts stop.")
    else:
        yield ok(DATABASE, text)


# ── Broker and processes ──────────────────────────────────────────────────────────────────────────────────────────────
def broker() -> Iterator[Finding]:
    if not settings.SETPOINT_HAS_BROKER:
        yield ok(BROKER, "This installation has none: workers find what is due in the database.")
        return
    if settings.CELERY_BROKER_URL.startswith("memory:"):
        yield ok(BROKER, "Messages are kept in the memory of the embedded server, with its workers.")
        return
    if (verdict := health.broker()) != "ok":
        yield problem(
            BROKER,
            f"Messages do not arrive: the broker is {verdict}."
            if verdict.startswith("away")
            else f"The broker takes messages and {verdict}.",
            "Start broker and beat, and see that SETPOINT_BROKER_URL names it. Until then workers find what is due in"
            " the database, one for each queue: slower.",
        )
        return
    yield ok(BROKER, "The broker takes connections.")
    yield from _workers()


def _workers() -> Iterator[Finding]:
    """Ask all workers over the broker which queues they take from: their answer is the round trip."""
    replies = app.control.inspect(timeout=REPLY_SECONDS).active_queues() or {}
    for queue in QUEUES:
        serving = sorted(name for name, taken in replies.items() if any(entry.get("name") == queue for entry in taken))
        if serving:
            many = "1 worker answers" if len(serving) == 1 else f"{len(serving)} workers answer"
            yield ok(BROKER, f"Queue {queue}: {many} over the broker.")
        else:
            yield problem(
                BROKER,
                f"Queue {queue}: no worker answers over the broker within {REPLY_SECONDS:g} s.",
                f"Start one: celery --app=config worker --queues={queue}.",
            )


def processes() -> Iterator[Finding]:
    """Beat, sealer and watch, as `/readyz` reports them."""
    verdict = health.sealer()
    if verdict == "ok":
        yield ok(PROCESSES, "Beat and workers seal the audit record.")
    elif verdict.startswith("silent"):
        yield problem(
            PROCESSES,
            f"The audit record is not being sealed: {verdict}.",
            "Start beat and a worker of the queue celery: without them nothing that is due is woken.",
        )
    else:
        yield problem(
            PROCESSES, f"The audit record is not being sealed: it {verdict}.", "Look at manage.py verify_audit."
        )
    verdict = health.watch()
    if verdict == "ok":
        yield ok(PROCESSES, "Each cluster is watched.")
    else:
        yield problem(PROCESSES, f"{verdict[0].upper()}{verdict[1:]}.", "Start manage.py watch, or another of it.")
