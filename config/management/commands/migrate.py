"""Django's `migrate`, one at a time for a database.

An orchestrator may start a migration while another still runs: a Job whose node is out of reach, an upgrade that was
started twice. Two at once would both try the same step. So each takes a lock of PostgreSQL first, which ends with its
connection, and reads what there is to do once it has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.core.management.base import OutputWrapper
from django.core.management.commands import migrate
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

LOCK = 0x5E79017
"""Any number that nothing else in the database locks; PostgreSQL's advisory locks are of one database."""
POLL_SECONDS = 1.0
"""Between two tries. A blocking wait would hold a snapshot, for which `CREATE INDEX CONCURRENTLY` of the migration that
runs would wait in turn."""
KEEPALIVE = {"tcp_keepalives_idle": 20, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
"""The server notices within a minute that the machine of a migration is gone, and drops its lock; else after hours."""


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        if options["check_unapplied"] or options["plan"]:  # these only read
            super().handle(*args, **options)
            return
        with one_at_a_time(connections[options["database"]], self.stderr):
            super().handle(*args, **options)


@contextmanager
def one_at_a_time(connection: BaseDatabaseWrapper, output: OutputWrapper) -> Iterator[None]:
    """Hold the lock on migrating this database; wait for it as long as another has it. SQLite needs none: one process
    has it to itself."""
    if connection.vendor != "postgresql":
        yield
        return
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        with _through_a_pooler(connection, output):
            yield
        return
    with connection.cursor() as cursor:
        for name, value in KEEPALIVE.items():
            cursor.execute(f"SET {name} = {value}")
    _wait(lambda: _answer(connection, "pg_try_advisory_lock"), output)
    try:
        yield
    finally:
        with suppress(DatabaseError):  # the connection is gone, and the lock with it
            _answer(connection, "pg_advisory_unlock")


@contextmanager
def _through_a_pooler(connection: BaseDatabaseWrapper, output: OutputWrapper) -> Iterator[None]:
    """Hold the same lock by a transaction that stays open on a connection of its own: a pooler leaves that its session,
    while a lock of the session would be left to the client that is served next. It holds no snapshot meanwhile."""
    holder = connection.copy()
    holder.set_autocommit(False)

    def take() -> bool:
        with holder.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        if not (is_taken := _answer(holder, "pg_try_advisory_xact_lock")):
            holder.rollback()
        return is_taken

    try:
        _wait(take, output)
        yield
    finally:
        with suppress(DatabaseError):  # the connection is gone, and the lock with it
            holder.rollback()
        holder.close()


def _wait(take: Callable[[], bool], output: OutputWrapper) -> None:
    has_told = False
    while not take():
        if not has_told:
            output.write("Another migration of this database is running. Waiting until it has ended.")
            output.flush()
            has_told = True
        time.sleep(POLL_SECONDS)


def _answer(connection: BaseDatabaseWrapper, function: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(%s)", [LOCK])
        return bool(cursor.fetchone()[0])
