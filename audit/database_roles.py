"""Two roles in PostgreSQL: one owns the tables and migrates, the other serves and cannot change the audit record.

`migrate`, run as the owner with SETPOINT_APPLICATION_DATABASE_URL, ends with `grant`: it makes the application's role
where it is missing, and leaves it what it needs on the tables of this version and of later ones. Everything else
connects as that role. With one role for everything nothing here is called; `powers` says what that role could do.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg import sql

from audit.models import Record, Refusal, Seal

VARIABLE = "SETPOINT_APPLICATION_DATABASE_URL"
APPEND_ONLY = tuple(model._meta.db_table for model in (Record, Seal, Refusal))
TABLES = "SELECT, INSERT, UPDATE, DELETE"
SEQUENCES = "USAGE, SELECT"
GRANTS = (
    "GRANT CONNECT ON DATABASE {database} TO {role}",
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}",  # also what was granted by hand
    f"GRANT {TABLES} ON ALL TABLES IN SCHEMA {{schema}} TO {{role}}",
    f"GRANT {SEQUENCES} ON ALL SEQUENCES IN SCHEMA {{schema}} TO {{role}}",
    f"ALTER DEFAULT PRIVILEGES IN SCHEMA {{schema}} GRANT {TABLES} ON TABLES TO {{role}}",
    f"ALTER DEFAULT PRIVILEGES IN SCHEMA {{schema}} GRANT {SEQUENCES} ON SEQUENCES TO {{role}}",
)
"""In one transaction with what follows: no other connection ever sees a right that is taken back again."""


def after_migration(using: str = "default", **_: Any) -> None:
    """Grant the application's role its rights; Django calls this at the end of `migrate`. Raises CommandError."""
    if settings.SETPOINT_APPLICATION_DATABASE and using == "default":
        grant(settings.SETPOINT_APPLICATION_DATABASE)


def grant(application: dict[str, Any]) -> None:
    """Leave the role of this connection description what the application needs, and no more. Raises CommandError."""
    if connection.vendor != "postgresql":
        raise CommandError(f"{VARIABLE} is for PostgreSQL: SQLite has no roles.")
    role = application.get("USER", "")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_database(), current_schema()")
        owner, database, schema = cursor.fetchone() or ("", "", "")
        if not role or role == owner:
            raise CommandError(f"{VARIABLE}: {role or 'no role'} is the role that migrates; name another.")
        _make(cursor, role, application.get("PASSWORD", ""))
        _refuse_the_mighty(cursor, role, owner)
        names = {"role": role, "database": database, "schema": schema}
        for statement in GRANTS:
            _execute(cursor, statement, **names)
        for table in (*APPEND_ONLY, "django_migrations"):
            if _is_there(cursor, table):
                _execute(cursor, "REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {role}", table=table, role=role)
        _execute(cursor, "REVOKE INSERT ON django_migrations FROM {role}", role=role)
        if _may_create(cursor, role, schema):  # PostgreSQL before 15 lets everyone
            _execute(cursor, "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {role}", **names)
        _refuse_what_is_left(cursor, role)


def powers() -> bool:
    """Return whether this connection's role could change or delete audit records: by its rights, or as a member of the
    tables' owner, which can drop the triggers."""
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT bool_or(has_table_privilege(oid, 'UPDATE') OR has_table_privilege(oid, 'DELETE')"
            " OR has_table_privilege(oid, 'TRUNCATE') OR pg_has_role(relowner, 'MEMBER'))"
            " FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)",
            [list(APPEND_ONLY)],
        )
        row = cursor.fetchone()
    return bool(row and row[0])


def _make(cursor: CursorWrapper, role: str, password: str) -> None:
    cursor.execute("SELECT rolname FROM pg_roles WHERE rolname = %s", [role])
    if cursor.fetchone():
        return
    cursor.execute("SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user")
    if not (cursor.fetchone() or (False,))[0]:
        raise CommandError(
            f"{VARIABLE}: there is no role {role}, and this one may not make it. "
            f'Have it made: CREATE ROLE "{role}" LOGIN PASSWORD …; then migrate again.'
        )
    # Hashed here, so that no log of statements shows it.
    hashed = cursor.connection.pgconn.encrypt_password(password.encode(), role.encode()).decode() if password else ""
    statement = "CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE"
    cursor.execute(
        sql.SQL(statement + (" PASSWORD {password}" if hashed else ""))
        .format(role=sql.Identifier(role), password=sql.Literal(hashed))
        .as_string(cursor.connection)
    )


def _refuse_the_mighty(cursor: CursorWrapper, role: str, owner: str) -> None:
    """Refuse a role that can become the tables' owner: rights do not bind it. Raises CommandError."""
    cursor.execute(
        "SELECT rolsuper, rolcreaterole, pg_has_role(rolname, %s, 'MEMBER') FROM pg_roles WHERE rolname = %s",
        [owner, role],
    )
    is_superuser, makes_roles, is_member = cursor.fetchone() or (True, True, True)
    if is_superuser:
        raise CommandError(f"{VARIABLE}: {role} is a superuser, to whom no right is refused; name another role.")
    if makes_roles or is_member:
        why = "may make roles" if makes_roles else f"is a member of {owner}, which owns the tables"
        raise CommandError(f"{VARIABLE}: {role} {why}; name another role.")


def _refuse_what_is_left(cursor: CursorWrapper, role: str) -> None:
    """Rights that come from elsewhere: PUBLIC, a role such as pg_write_all_data."""
    cursor.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)"
        " AND (has_table_privilege(%s, oid, 'UPDATE') OR has_table_privilege(%s, oid, 'DELETE')"
        " OR has_table_privilege(%s, oid, 'TRUNCATE'))",
        [list(APPEND_ONLY), role, role, role],
    )
    if left := sorted(row[0] for row in cursor.fetchall()):
        raise CommandError(
            f"{VARIABLE}: {role} may still change {', '.join(left)}, by a role that it is a member of or by what "
            "PUBLIC may do; take that away, or name another role."
        )


def _is_there(cursor: CursorWrapper, table: str) -> bool:
    cursor.execute("SELECT to_regclass(%s)", [table])
    return bool((cursor.fetchone() or (None,))[0])


def _may_create(cursor: CursorWrapper, role: str, schema: str) -> bool:
    cursor.execute("SELECT has_schema_privilege(%s, %s, 'CREATE')", [role, schema])
    return bool((cursor.fetchone() or (False,))[0])


def _execute(cursor: CursorWrapper, statement: str, **names: str) -> None:
    quoted = {name: sql.Identifier(value) for name, value in names.items()}
    cursor.execute(sql.SQL(statement).format(**quoted).as_string(cursor.connection))
