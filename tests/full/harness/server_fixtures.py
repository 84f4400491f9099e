"""PostgreSQL and Redis for tests that take them away: a private pair per module, never the suite's own database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.full.harness import migrated
from tests.full.harness.servers import PgBouncer, Postgres, Redis


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server whose database has Setpoint's tables already."""
    with Postgres(migrated.data()) as server:
        yield server


@pytest.fixture(scope="module")
def empty_postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture(scope="module")
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    """A pooler in transaction mode before `postgres`."""
    with PgBouncer(postgres) as server:
        yield server
