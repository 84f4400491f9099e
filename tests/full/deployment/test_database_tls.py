"""PostgreSQL over TLS with a CA of its own, at two addresses of which one is the primary; and no broker at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.controlplane.pki import Authority
from tests.full.harness import migrated
from tests.full.harness.client import ALL_SCOPES, Person, eventually
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres
from tests.full.harness.site import PASSWORD

pytestmark = [pytest.mark.full, pytest.mark.long]
authority = Authority("database")


def with_tls(server: Postgres) -> Postgres:
    """Give it a certificate for the address alone, not for the name localhost."""
    certificate, key = authority.server(["127.0.0.1"])
    files = {"ssl_cert_file": server.keep("server.crt", certificate), "ssl_key_file": server.keep("server.key", key)}
    server.options |= {"ssl": "on", **{name: str(path) for name, path in files.items()}}
    return server


@pytest.fixture(scope="module")
def primary() -> Iterator[Postgres]:
    with with_tls(Postgres(migrated.data())) as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: Postgres) -> Iterator[Postgres]:
    with with_tls(Postgres(None, primary)) as server:
        yield server


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "ca.crt"
    path.write_text(authority.pem)
    return path


def url(hosts: str, ca: Path, more: str = "") -> str:
    return f"postgresql://setpoint@{hosts}/setpoint?sslmode=verify-full&sslrootcert={ca}{more}"


def advice(database_url: str) -> str:
    with Installation(database_url, "none") as setpoint:
        findings = json.loads(setpoint.attempt("doctor", "--json").stdout)["findings"]
    return " ".join(f["text"] + f["advice"] for f in findings if f["area"] == "database" and f["state"] == "problem")


def test_another_ca_and_another_name_are_refused_and_the_advice_names_what_to_change(
    primary: Postgres, ca: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_text(Authority("another").pem)
    assert "sslrootcert" in advice(url(f"127.0.0.1:{primary.port}", other))
    assert "host name that the server's certificate is for" in advice(url(f"localhost:{primary.port}", ca))


def test_a_promoted_standby_at_the_second_address_takes_over(primary: Postgres, standby: Postgres, ca: Path) -> None:
    hosts = f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    assert "No host" in advice(url(f"127.0.0.1:{standby.port}", ca, "&target_session_attrs=read-write"))
    both = url(hosts, ca, "&target_session_attrs=read-write")
    with Installation(both, "none", {"SETPOINT_SWEEP_SECONDS": "1"}) as setpoint:
        setpoint.migrate()
        setpoint.environment["SETPOINT_ADMIN_PASSWORD"] = PASSWORD
        setpoint.manage("createadmin", "admin@example.com")
        setpoint.start("web", "worker")
        admin = Person(setpoint.url, "admin@example.com")
        admin.log_in(PASSWORD, ALL_SCOPES)
        admin.post("users", {"email": "before@example.com"})
        assert is_all_over_tls(primary)
        written = value_of(primary, "SELECT pg_current_wal_insert_lsn()")
        eventually(lambda: value_of(standby, f"SELECT pg_last_wal_replay_lsn() >= '{written}'"), standby.log_end)

        primary.crash()
        standby.promote()

        promoted = value_of(standby, "SELECT clock_timestamp()")
        sealed = f"SELECT checked_at > '{promoted}' FROM audit_chain"
        eventually(lambda: value_of(standby, sealed), lambda: setpoint.log("worker"))
        setpoint.wait_ready()
        again = Person(setpoint.url, "admin@example.com")
        again.log_in(PASSWORD, ALL_SCOPES)
        again.post("users", {"email": "after@example.com"})
        assert {"before@example.com", "after@example.com"} <= {row["email"] for row in again.every("users")}
        assert all(setpoint.is_running(name) for name in ("web", "worker"))
        assert is_all_over_tls(standby)


def is_all_over_tls(server: Postgres) -> bool:
    with psycopg.connect(server.url) as look:
        rows = look.execute(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE datname = 'setpoint' AND pid <> pg_backend_pid()"
        ).fetchall()
    return bool(rows) and all(is_tls for (is_tls,) in rows)


def value_of(server: Postgres, statement: str) -> Any:
    with psycopg.connect(server.url) as look:
        row = look.execute(statement.encode()).fetchone()
    return row[0] if row else None
