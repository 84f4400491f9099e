"""The servers that other tests take away really come and go."""

from __future__ import annotations

import subprocess

import psycopg
import pytest
import redis

from tests.full.harness import base_environment
from tests.full.harness.processes import ROOT, Installation
from tests.full.harness.servers import Postgres, Redis, Sentinel

ANSWERS = """
import django
django.setup()
from config.celery import app
from config.sending import answers
print(answers(app))
"""


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


def test_a_broker_behind_sentinel_takes_messages(redis_server: Redis) -> None:
    with Sentinel(redis_server, "mymaster") as sentinel:
        for master, answers in (("mymaster", "True"), ("another", "False")):
            how = {"SETPOINT_BROKER_MASTER": master}
            with Installation(
                "postgresql://nobody@127.0.0.1:1/none", f"{sentinel.url};{sentinel.url}", how
            ) as setpoint:
                done = subprocess.run(
                    [str(base_environment.programs() / "python"), "-c", ANSWERS],
                    cwd=ROOT,
                    env={**setpoint.environment, "DJANGO_SETTINGS_MODULE": "config.settings"},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=120,
                )
            assert done.stdout.strip() == answers, done.stderr
