"""Workers without a broker: while it brings nothing, one of them finds what is due in the database.

Every worker looks whether sweeps arrive over the broker; that they arrive is what counts, not whether something
listens on a port, so that a broker that is dead, frozen or full and a beat that is dead are noticed alike. If three
sweeps are missing and the broker does not take a message, or twelve are missing, one worker of each
queue takes a lease (`jobs.engine.sweeping`) and sends the tasks of the schedule to threads of its own, under the same
claims as ever. It ends when a sweep arrives again. Without any broker (SETPOINT_BROKER_URL=none) it never does.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections

from common.clock import now
from config import sending
from config.celery import app
from jobs.engine import sweeping
from jobs.engine.sweeping import CELERY, HELM

log = logging.getLogger(__name__)

MISSED_AWAY, MISSED_ANYHOW = 3, 12
"""Sweeps that did not arrive: where the broker takes no message, and where it does. Of those that come back, Celery's
workers connect again within 30 s."""
POLL_SECONDS = 1.0
"""Between two looks of the elected worker: wakes of other processes do not reach it."""
GPUS = "gpus"
THREADS = {CELERY: 8, GPUS: 4, HELM: 2}
"""As many as the workers of docker-compose.yml have."""
STOP_SECONDS = 20.0
QUEUES = tuple(THREADS)
SWEEP = "jobs.tasks.sweep"


def scheduled(queue: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the schedule's entries whose tasks workers of this queue take, each with its name."""
    entries = settings.CELERY_BEAT_SCHEDULE.items()
    return [(name, entry) for name, entry in entries if sending.queue_of(app, entry["task"]) == queue]


class Standby:
    """One worker's part: look, take the lease, sweep. `run` is a thread of the worker."""

    def __init__(self, queues: Collection[str]) -> None:
        self.queues = [queue for queue in QUEUES if queue in queues]
        self.owner = f"{socket.gethostname()[:60]}-{os.getpid()}-{uuid4().hex[:8]}"
        self._since = now()
        self._locals = {queue: sending.LocalTasks(THREADS[queue], f"standby-{queue}") for queue in self.queues}
        self._due: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and let another worker take over at once. What runs has as long as a worker's tasks have."""
        self._stop.set()
        until = time.monotonic() + STOP_SECONDS
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        for local in self._locals.values():
            local.close(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = min(POLL_SECONDS, settings.SETPOINT_SWEEP_SECONDS)
            try:
                close_old_connections()
                is_elected = [self.turn(queue) for queue in self.queues]  # also the second where the first is
                if not any(is_elected):
                    pause = settings.SETPOINT_SWEEP_SECONDS
            except DatabaseError as error:
                log.warning("standby: the database does not answer: %s", str(error).strip()[:200])
            except Exception:
                log.exception("standby: a look failed; the next one follows")
            _show_life()
            self._stop.wait(pause * random.uniform(0.8, 1.2))  # noqa: S311 — spreads the workers, keeps no secret
        self._leave()

    def turn(self, queue: str) -> bool:
        """Look once. Return whether this worker sweeps for this queue now."""
        if not self._is_needed(queue) or not sweeping.claim(queue, self.owner):
            if sending.standing_in.pop(queue, None) is not None:
                sweeping.release(queue, self.owner)
                log.warning("standby: queue %s: this worker no longer sweeps in place of the broker", queue)
            return False
        if queue not in sending.standing_in:
            log.warning("standby: queue %s: no sweep arrives over the broker; this worker sweeps by itself", queue)
            sending.standing_in[queue] = self._locals[queue]
        self._send_due(queue)
        return True

    def _is_needed(self, queue: str) -> bool:
        if not settings.SETPOINT_HAS_BROKER:
            return True
        if queue != CELERY:  # no sweep is sent there: it follows the queue that sweeps are for
            return sweeping.without_broker(CELERY) is not None
        if queue in sending.standing_in:
            return not sweeping.is_delivered_again(queue)
        silent = sweeping.silent_sweeps(queue, self._since)
        if silent < MISSED_AWAY:
            return False
        return silent >= MISSED_ANYHOW or sweeping.without_broker(queue) is not None or not sending.answers(app)

    def _send_due(self, queue: str) -> None:
        """Queue what the schedule has due, each at its own period and the sweep at every look."""
        local, tasks = self._locals[queue], app.tasks
        if queue == HELM:
            for pk in sweeping.due_for_helm():
                local.submit(tasks["jobs.tasks.helm"], (str(pk),), settings.SETPOINT_SWEEP_SECONDS)
            return
        at = time.monotonic()
        for name, entry in scheduled(queue):
            if entry["task"] == SWEEP or self._due.get(name, at) <= at:
                self._due[name] = at + float(entry["schedule"])
                local.submit(tasks[entry["task"]], (), entry["options"]["expires"])

    def _leave(self) -> None:
        try:
            for queue in self.queues:
                if sending.standing_in.pop(queue, None) is not None:
                    sweeping.release(queue, self.owner)
        except DatabaseError:
            log.warning("standby: the lease of this worker ends by itself")
        finally:
            connections.close_all()


def _show_life() -> None:
    """An absent database is no reason to restart a worker, so a look that failed counts."""
    if settings.SETPOINT_STANDBY_ALIVE:
        try:
            Path(settings.SETPOINT_STANDBY_ALIVE).touch()
        except OSError as error:
            log.error("standby: SETPOINT_STANDBY_ALIVE: %s", error)


_running: list[Standby] = []


def begin(instance: Any) -> None:
    """Start beside a worker of Celery, before it has its broker."""
    if settings.EMBEDDED:
        return
    queues = instance.app.amqp.queues.consume_from
    standby = Standby(set(queues))
    _running.append(standby)
    standby.start()


def end() -> None:
    while _running:
        _running.pop().stop()
