"""Two roles in PostgreSQL: one migrates and owns the tables, the other serves and cannot change the audit record.

Both log in with passwords, and neither is a superuser, as on a server that another party runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.client import eventually
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import SETTINGS, Site

pytestmark = pytest.mark.full

APPEND_ONLY = ("audit_record", "audit_seal", "audit_refusal")
PASSWORDS = {"setpoint_owner": "of the owner", "setpoint_app": "of the%40application"}
RULES = "host all setpoint 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
NODES = ("roles-1", "roles-2")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    rules = server.folder / "hba.conf"
    rules.write_text(RULES)
    rules.chmod(0o644)
    server.options["hba_file"] = str(rules)
    with server:
        as_superuser(server, "CREATE ROLE setpoint_owner LOGIN CREATEROLE PASSWORD 'of the owner'")
        yield server


def as_superuser(server: Postgres, statement: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


@dataclass(frozen=True)
class Database:
    """One database of the server, and how each role reaches it."""

    server: Postgres
    name: str

    def url(self, role: str) -> str:
        password = PASSWORDS[role].replace(" ", "%20")
        return f"postgresql://{role}:{password}@127.0.0.1:{self.server.port}/{self.name}"

    def run(self, role: str, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(role), autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return list(cursor) if cursor.description else []


@pytest.fixture(scope="module")
def make_database(postgres: Postgres) -> Callable[[str], Database]:
    def make(name: str) -> Database:
        as_superuser(postgres, f"CREATE DATABASE {name} OWNER setpoint_owner")
        return Database(postgres, name)

    return make


@pytest.fixture(scope="module")
def database(make_database: Callable[[str], Database]) -> Database:
    return make_database("fresh")


@pytest.fixture(scope="module")
def site(deployed: Plane, cluster_admin: Admin, database: Database, redis_server: Redis) -> Iterator[Site]:
    """Everything that serves is the application's role; what migrates is the owner, and makes that role."""
    urls = database.url("setpoint_app"), redis_server.url
    with Installation(*urls, SETTINGS, owner_url=database.url("setpoint_owner")) as installation:
        opened = Site(deployed, cluster_admin, installation)
        try:
            yield opened.open()
        finally:
            opened.close()


@pytest.mark.usefixtures("judged")
def test_the_whole_job_is_done_by_the_role_that_cannot_change_the_record(
    site: Site, make_fleet: Callable[..., KwokFleet]
) -> None:
    """Log in, publish, plan, approve, roll out, revert; all of it recorded, sealed and verified."""
    make_fleet("roles", *NODES)
    site.setpoint.manage("load_library")
    rollout = site.rollout_of(site.pool(pool="roles"), site.revision({"vm.swappiness": "12"}))
    site.until(rollout, "succeeded")
    site.act(rollout, "revert")
    site.until(rollout, "reverted")

    actions = {record["action"] for record in site.admin.every("audit")}
    assert {"rollout.start", "rollout.revert"} <= actions, actions
    eventually(
        lambda: "0 records not yet sealed" in (output := site.setpoint.manage("verify_audit")) and output,
        lambda: site.setpoint.attempt("verify_audit"),
    )
    completed = site.setpoint.attempt("verify_audit")
    assert completed.returncode == 0
    assert "may change" not in completed.stderr, "this role may not"


@pytest.mark.long
def test_what_the_owner_may_do_is_warned_of_and_works_all_the_same(database: Database, site: Site) -> None:
    """One role for everything, as before: still possible, and said."""
    environment = site.setpoint.environment
    environment["SETPOINT_DATABASE_URL"] = database.url("setpoint_owner")
    try:
        completed = site.setpoint.attempt("verify_audit")
    finally:
        environment["SETPOINT_DATABASE_URL"] = database.url("setpoint_app")
    assert completed.returncode == 0, completed.stderr
    assert "may change" in completed.stderr


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {table} SET {column} = {column}",
        "DELETE FROM {table}",
        "TRUNCATE {table} CASCADE",
        "DROP TABLE {table} CASCADE",
        "ALTER TABLE {table} DISABLE TRIGGER ALL",
        "DROP TRIGGER {table}_append_only ON {table}",
        "CREATE RULE gone AS ON INSERT TO {table} DO INSTEAD NOTHING",
        "ALTER TABLE {table} OWNER TO setpoint_app",
        "SET ROLE setpoint_owner",
        "SET session_replication_role = replica",
        "CREATE TABLE public.{table}_of_mine (id int)",
        "CREATE OR REPLACE FUNCTION setpoint_append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "DELETE FROM django_migrations",
    ],
)
def test_the_applications_role_is_refused_by_the_database_itself(
    database: Database, table: str, statement: str
) -> None:
    column = database.run(
        "setpoint_owner", f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' LIMIT 1"
    )[0][0]
    with psycopg.connect(database.url("setpoint_app")) as connection:
        tried = sql.SQL(statement).format(table=sql.SQL(table), column=sql.Identifier(str(column)))  # type: ignore[arg-type]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(tried)


def rights(database: Database, table: str) -> set[str]:
    kinds = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER")
    columns = ", ".join(f"has_table_privilege('setpoint_app', '{table}', '{kind}')" for kind in kinds)
    answers = database.run("setpoint_owner", f"SELECT {columns}")[0]
    return {kind for kind, has in zip(kinds, answers, strict=True) if has}


@pytest.mark.long
def test_an_installation_with_one_role_gets_two_by_an_upgrade_that_brings_new_tables(
    make_database: Callable[[str], Database], redis_server: Redis
) -> None:
    """The owner does everything before the upgrade, and the tables of seals do not exist yet."""
    database = make_database("older")
    owner, application = database.url("setpoint_owner"), database.url("setpoint_app")
    with Installation(owner, redis_server.url) as older:
        older.manage("migrate", "audit", "0001", "--no-input")
        assert not database.run("setpoint_owner", "SELECT to_regclass('audit_seal')")[0][0]

    with Installation(application, redis_server.url, owner_url=owner) as setpoint:
        setpoint.manage("migrate", "audit", "0001", "--no-input")  # tables that are not there yet are no mistake
        assert rights(database, "audit_record") == {"SELECT", "INSERT"}
        setpoint.migrate()
        for table in APPEND_ONLY:
            assert rights(database, table) == {"SELECT", "INSERT"}, table
        assert rights(database, "audit_chain") == {"SELECT", "INSERT", "UPDATE", "DELETE"}
        assert rights(database, "django_migrations") == {"SELECT"}
        completed = setpoint.attempt("migrate", "--check")
        assert completed.returncode == 0, completed.stderr

        # By the owner alone, past every command of ours: a table and a sequence of a later version.
        database.run("setpoint_owner", "CREATE TABLE later (id bigserial PRIMARY KEY)")
        database.run("setpoint_app", "INSERT INTO later DEFAULT VALUES")
        assert rights(database, "later") == {"SELECT", "INSERT", "UPDATE", "DELETE"}
        database.run("setpoint_owner", "DROP TABLE later")

        # Granted too much by hand: the next upgrade revokes it.
        database.run("setpoint_owner", "GRANT ALL ON ALL TABLES IN SCHEMA public TO setpoint_app")
        setpoint.migrate()
        assert rights(database, "audit_seal") == {"SELECT", "INSERT"}


@pytest.mark.parametrize(
    ("role", "made", "names"),
    [
        ("setpoint_owner", "", "is the role that migrates"),
        ("setpoint_super", "CREATE ROLE setpoint_super LOGIN SUPERUSER PASSWORD 'x'", "superuser"),
        ("setpoint_member", "CREATE ROLE setpoint_member LOGIN IN ROLE setpoint_owner PASSWORD 'x'", "setpoint_owner"),
        ("setpoint_writer", "CREATE ROLE setpoint_writer LOGIN IN ROLE pg_write_all_data PASSWORD 'x'", "audit_record"),
    ],
)
def test_an_application_that_could_take_the_owners_place_is_refused_in_words(
    database: Database, postgres: Postgres, redis_server: Redis, role: str, made: str, names: str
) -> None:
    if made:
        as_superuser(postgres, made)
    application = f"postgresql://{role}:x@127.0.0.1:{postgres.port}/{database.name}"
    with Installation(application, redis_server.url, owner_url=database.url("setpoint_owner")) as setpoint:
        completed = setpoint.attempt("migrate", "--no-input")
    assert completed.returncode != 0
    assert "SETPOINT_APPLICATION_DATABASE_URL" in completed.stderr
    assert names in completed.stderr
    assert "Traceback" not in completed.stderr
