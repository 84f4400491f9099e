"""Sending tasks to a broker that may be away, frozen or full: a lost message costs a sweep, never the caller.

Every task of this application is a `WakingTask`. Its message is sent once, within `SEND_SECONDS`. What fails is logged
and dropped, because the row is the queue; after that nothing is tried for `REST_SECONDS`, so that a broker that accepts
connections and never answers delays one request in a while, and not each. Where this process sweeps in place of the
broker (`config.standby`), tasks go to its own threads instead.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from celery.contrib.django.task import DjangoTask
from django.conf import settings
from django.db import close_old_connections, connections
from kombu.connection import Connection
from kombu.exceptions import EncodeError

log = logging.getLogger(__name__)

SEND_SECONDS = 2.0
"""Of connecting, and of each answer. A broker that is there answers within milliseconds."""
REST_SECONDS = 5.0
"""After a failure: no longer than the default sweep, which finds what was not sent."""


class LosableConnection(Connection):
    """Connection whose loss never ends the worker.

    kombu 5.7 closes the channels of a lost connection twice. If the broker goes away during the first close, the second
    one wants to give unacknowledged messages back through a transport that is gone, and fails with `AttributeError`.
    Celery takes that for a defect of the worker and ends it. The messages are safe: the row is the queue.
    """

    def maybe_close_channel(self, channel: Any) -> None:
        try:
            super().maybe_close_channel(channel)  # type: ignore[no-untyped-call]
        except AttributeError as error:
            log.info("a channel of a lost connection was not closed in order: %s", error)


class Amqp(AMQP):  # type: ignore[misc]  # celery has no types
    Connection = LosableConnection


class App(Celery):  # type: ignore[misc]  # celery has no types
    amqp_cls = "config.sending:Amqp"

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        """Connection to send with. Consumers wait for messages, and keep the longer timeouts of the settings."""
        bounds = {"socket_timeout": SEND_SECONDS, "socket_connect_timeout": SEND_SECONDS}
        options["transport_options"] = {**bounds, **(options.get("transport_options") or {})}
        return super().connection_for_write(url, **options)


class Breaker:
    """Circuit breaker: after a failure one thread tries again when the rest is over, and the others wait for its
    result."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._broken = False
        self._until = 0.0

    def may_try(self) -> bool:
        with self._lock:
            if not self._broken:
                return True
            if self._clock() < self._until:
                return False
            self._until = self._next()
            return True

    def failed(self) -> None:
        with self._lock:
            self._broken, self._until = True, self._next()

    def succeeded(self) -> None:
        with self._lock:
            self._broken = False

    def _next(self) -> float:
        """Spread, so that the processes of an installation do not all ask a returning broker at once."""
        return self._clock() + REST_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 — a pause, no secret


class LocalTasks:
    """Threads of this process that carry tasks out. One that waits already is not queued a second time, so what waits
    is bounded by the rows that are due."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads, self._name = threads, name
        self._changed = threading.Condition()
        self._waiting: dict[tuple[str, str], tuple[Any, tuple[Any, ...], float]] = {}
        self._live = 0
        self._free = 0
        self._is_closed = False

    def submit(self, task: Any, args: tuple[Any, ...] = (), expires: float | None = None) -> None:
        """Queue it, for at most `expires` seconds."""
        until = time.monotonic() + expires if expires else float("inf")
        with self._changed:
            if self._is_closed:
                return
            self._waiting.setdefault((task.name, repr(args)), (task, args, until))
            if self._free < len(self._waiting) and self._live < self._threads:
                self._live += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._live}", daemon=True).start()
            self._changed.notify()

    def close(self, seconds: float) -> bool:
        """Forget what waits, and wait for what runs. False: something still runs, as after a kill."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._live, seconds)

    def _work(self) -> None:
        try:
            while (item := self._next()) is not None:
                _carry_out(*item)
        finally:
            connections.close_all()
            with self._changed:
                self._live -= 1
                self._changed.notify_all()

    def _next(self) -> tuple[Any, tuple[Any, ...]] | None:
        with self._changed:
            self._free += 1
            try:
                while not self._is_closed:
                    while self._waiting:
                        task, args, until = self._waiting.pop(next(iter(self._waiting)))
                        if time.monotonic() < until:
                            return task, args
                    self._changed.wait()
                return None
            finally:
                self._free -= 1


def _carry_out(task: Any, args: tuple[Any, ...]) -> None:
    """Run one as a worker does: with a request id; an error is logged and ends here."""
    try:
        close_old_connections()
        task.apply(args, throw=False)
    except Exception:
        log.exception("%s failed", task.name)
    finally:
        close_old_connections()


breaker = Breaker()
standing_in: dict[str, LocalTasks] = {}
"""By queue: the threads of this process, while it sweeps in place of the broker."""
asked_for = LocalTasks(1, "asked-for")
"""What a person asked for and no row remembers (`is_kept`), where the broker does not take it."""


class WakingTask(DjangoTask):  # type: ignore[misc]  # celery has no types
    abstract = True
    is_kept = False
    """No row says that it is due: what cannot be sent is done by the process that was asked."""

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Send it. None: it was not sent, and the sweep finds the row; or it is carried out here."""
        if kwargs:
            raise TypeError(f"{self.name}: tasks take ids, by position")
        if (local := standing_in.get(queue_of(self.app, self.name))) is not None:
            local.submit(self, tuple(args or ()), options.get("expires"))
            return None
        if settings.SETPOINT_HAS_BROKER and breaker.may_try():
            try:
                sent = super().apply_async(args, kwargs, **{**options, "retry": False})
            except (TypeError, ValueError, EncodeError):  # a message that no broker could take: a defect of the caller
                raise
            except Exception as error:  # kombu's transports raise errors of their own client libraries
                breaker.failed()
                log.warning("%s was not sent: the broker does not take it: %s", self.name, error)
            else:
                breaker.succeeded()
                return sent
        if self.is_kept:
            asked_for.submit(self, tuple(args or ()))
        return None


def queue_of(app: Celery, task: str) -> str:
    """Return the queue that messages of this task go to."""
    return str(app.amqp.router.route({}, task)["queue"].name)


def answers(app: Celery) -> bool:
    """Return whether the broker takes messages: a Redis that is full takes connections only."""
    try:
        with app.connection_for_write(connect_timeout=SEND_SECONDS) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=SEND_SECONDS)
            if (client := getattr(connection.default_channel, "client", None)) is not None and hasattr(client, "set"):
                client.set("setpoint-answers", "", ex=5)
    except Exception:  # kombu's transports raise errors of their own client libraries
        return False
    return True
