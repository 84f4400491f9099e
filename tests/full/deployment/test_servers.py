"""The servers that other tests take away really come and go."""

from __future__ import annotations

import psycopg
import pytest
import redis

from tests.full.harness.servers import Postgres, Redis


def test_postgres_keeps_its_data_over_a_restart_and_a_crash(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n integer)")
        connection.execute("INSERT INTO kept VALUES (41)")
        postgres.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")

    postgres.crash()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres.url, connect_timeout=2)
    postgres.start()

    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (41,)


def test_a_flushed_redis_has_forgotten_everything(redis_server: Redis) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("queued", "message")
        redis_server.flush()
        assert client.get("queued") is None
