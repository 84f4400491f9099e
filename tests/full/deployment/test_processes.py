"""The entry points of docker-compose.yml as plain processes, on a real PostgreSQL and a real Redis that come and go."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from unittest.mock import Mock
from uuid import uuid4

import pytest
from celery import Celery
from kombu import Queue
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from config.sending import App
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis

PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def setpoint(empty_postgres: Postgres, redis_server: Redis) -> Iterator[Installation]:
    with Installation(empty_postgres.url, redis_server.url, {"SETPOINT_SWEEP_SECONDS": "1"}) as installation:
        installation.migrate()
        installation.start("web", "worker", "helm", "gpus", "beat", "watch")
        yield installation


def eventually(what: Callable[[], bool], says: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, says()
        time.sleep(0.5)


def taken(broker_url: str) -> dict[str, dict[str, int]]:
    """Return how many tasks of each name each worker that answers took since it started."""
    with Celery(broker=broker_url, set_as_current=False) as app:  # other tests' tasks go to the product's own
        try:
            answers = app.control.inspect(timeout=2).stats() or {}
        except (OSError, OperationalError, RedisError):
            return {}
    return {name.partition("@")[0]: answer["total"] for name, answer in answers.items()}


def sweeps(broker_url: str) -> int:
    """Return the workers' sweeps since they started; -1 without an answer."""
    return max((total.get("jobs.tasks.sweep", 0) for total in taken(broker_url).values()), default=-1)


def test_web_answers_for_itself_and_for_its_database(setpoint: Installation) -> None:
    assert setpoint.status("/healthz") == 200
    assert setpoint.status("/readyz") == 200


def test_every_process_keeps_running(setpoint: Installation) -> None:
    time.sleep(3)
    stopped = [name for name in ("web", "worker", "helm", "gpus", "beat", "watch") if not setpoint.is_running(name)]
    assert not stopped, "\n".join(setpoint.log(name) for name in stopped)


def test_beat_makes_a_worker_sweep_again_and_again(setpoint: Installation, redis_server: Redis) -> None:
    eventually(lambda: sweeps(redis_server.url) >= 2, lambda: setpoint.log("beat") + setpoint.log("worker"))


def test_a_reading_that_hangs_delays_no_sweep(setpoint: Installation, redis_server: Redis) -> None:
    eventually(
        lambda: "gpus.tasks.tick" in taken(redis_server.url).get("gpus", {}),
        lambda: setpoint.log("gpus"),
    )
    os.kill(setpoint.pid("gpus"), signal.SIGSTOP)  # as one that has no other thread left
    try:
        before = max(0, sweeps(redis_server.url))
        eventually(lambda: sweeps(redis_server.url) >= before + 8, lambda: setpoint.log("worker"))  # beyond two ticks
        of_worker = {name for name in taken(redis_server.url)["worker"] if name.startswith("gpus.")}
        assert of_worker <= {"gpus.tasks.check_gates", "gpus.tasks.guard"}
    finally:
        os.kill(setpoint.pid("gpus"), signal.SIGCONT)


def test_a_flushed_broker_costs_messages_not_the_sweep(setpoint: Installation, redis_server: Redis) -> None:
    before = max(0, sweeps(redis_server.url))
    redis_server.flush()
    eventually(lambda: sweeps(redis_server.url) >= before + 2, lambda: setpoint.log("worker"))


def test_a_connection_that_is_lost_while_it_closes_can_still_be_closed(
    redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The channel holds a message, as a worker's does while all threads are busy. An error here would end it."""
    connection = App(broker=redis_server.url, set_as_current=False).connection_for_read()
    queue = Queue(f"lost-{uuid4()}", auto_delete=True)
    with connection.Producer() as producer:
        producer.publish({}, routing_key=queue.name, declare=[queue])
    waiting: list[object] = []
    connection.Consumer([queue], callbacks=[lambda _, it: waiting.append(it)]).consume()
    with contextlib.suppress(socket.timeout):
        while True:  # the last round leaves the connection waiting for an answer
            connection.drain_events(timeout=0.3)  # less than the 1 s after which Redis answers that there is nothing
    assert len(waiting) == 1
    try:
        redis_server.crash()
        monkeypatch.setattr(connection.transport, "close_connection", Mock(side_effect=AttributeError))
        connection.collect(socket_timeout=1)
        connection.close()
    finally:
        redis_server.start()


def test_a_restarted_broker_is_found_again(setpoint: Installation, redis_server: Redis) -> None:
    before = max(0, sweeps(redis_server.url))
    redis_server.restart(down_seconds=3)
    eventually(lambda: sweeps(redis_server.url) >= before + 2, lambda: setpoint.log("worker") + setpoint.log("beat"))


def test_without_its_database_web_lives_but_is_not_ready_and_recovers_by_itself(
    setpoint: Installation, empty_postgres: Postgres, redis_server: Redis
) -> None:
    empty_postgres.stop()
    try:
        eventually(lambda: setpoint.status("/readyz") == 503, lambda: setpoint.log("web"))
        assert setpoint.status("/healthz") == 200
    finally:
        empty_postgres.start()
    eventually(lambda: setpoint.status("/readyz") == 200, lambda: setpoint.log("web"))
    before = max(0, sweeps(redis_server.url))
    eventually(lambda: sweeps(redis_server.url) >= before + 2, lambda: setpoint.log("worker"))
    assert all(setpoint.is_running(name) for name in ("web", "worker", "helm", "gpus", "beat", "watch"))


def test_a_killed_worker_is_no_loss_once_another_runs(setpoint: Installation, redis_server: Redis) -> None:
    setpoint.kill("worker")
    setpoint.start("worker")
    eventually(lambda: sweeps(redis_server.url) >= 2, lambda: setpoint.log("worker"))


@pytest.mark.parametrize("name", ["worker", "helm", "gpus", "beat", "watch", "web"])
def test_a_process_that_is_asked_to_stop_stops_in_time(setpoint: Installation, name: str) -> None:
    """Last in the file: an orchestrator's SIGTERM ends each process without its patience running out."""
    began = time.monotonic()
    status = setpoint.stop(name)
    assert time.monotonic() - began < 20
    assert status in (0, -15), setpoint.log(name)
