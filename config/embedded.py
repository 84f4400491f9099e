"""The whole product in one process: web, worker, beat and watch as threads, over SQLite and an in-memory broker.

`manage.py up`, the demo and tests start the same thing. Every part is one that production runs as a process of its own;
a part that ends with an error is started again after a pause, as a process supervisor would.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
import waitress.server
from celery import signals
from celery.worker import WorkController, state
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections, connections
from waitress.channel import HTTPChannel
from waitress.task import ErrorTask, Task, WSGITask
from waitress.utilities import RequestEntityTooLarge

from clusters.watch import supervisor
from config import env, memory
from config.celery import app
from config.standby import QUEUES

log = structlog.get_logger(__name__)

RESTART_SECONDS = 2.0
STOP_SECONDS = 20.0
"""A worker's slice ends within its lease; a later one is left behind, as a killed process would be."""
UPLOAD_LIMIT = 16 * 1024 * 1024
"""waitress cuts off above this; from what an address takes up to this, config.middleware explains."""


@dataclass
class Embedded:
    """The running processes' threads. `stop` ends them, also after a half failed start."""

    url: str = ""
    port: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _server: Any = None

    def stop(self) -> bool:
        """End web first, so that nothing new comes in; return whether all has ended, at the latest after STOP_SECONDS.

        A thread that is left behind ends when it checks the stop flags, which stay set; see `leave`.
        """
        self._stop.set()
        if self._server is not None:
            server = self._server
            with suppress(OSError):  # its loop may wake by itself, do this and close the trigger before it is pulled
                server.trigger.pull_trigger(lambda: server.asyncore.close_all(server._map))
        state.should_stop = 0  # a worker that is still starting finds it when it has started
        until = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                log.warning("left behind", part=thread.name)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, name: str, part: Callable[[threading.Event], None]) -> None:
        thread = threading.Thread(target=_kept_alive, args=(name, part, self._stop), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)


def start(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    listener: socket.socket | None = None,
    with_web: bool = True,
    with_watch: bool = True,
    with_beat: bool = True,
) -> Embedded:
    """Start everything; port 0 takes a free one, a listener replaces both. Raises OSError when the port is taken.

    The database must be migrated. Once at a time in a process: Celery's stop flag is one per process.
    """
    if not settings.CELERY_BROKER_URL.startswith("memory:"):
        raise RuntimeError("the embedded server needs the in-memory broker: unset SETPOINT_BROKER_URL")
    running = Embedded()
    memory.settle()
    if with_web:
        where: dict[str, Any] = {"sockets": [listener]} if listener else {"host": host, "port": port}
        server = waitress.server.create_server(
            WSGIHandler(),
            **where,
            threads=settings.SETPOINT_WEB_THREADS,
            ident=None,
            max_request_body_size=UPLOAD_LIMIT,
            clear_untrusted_proxy_headers=False,  # config settles whom to believe: SETPOINT_PROXIES
        )
        server.channel_class = _Channel
        running._server = server
        running.port = server.effective_port
        running.url = f"http://{listener.getsockname()[0] if listener else host}:{running.port}"
        running._run("web", lambda stop: _serve(server))
    state.should_stop = None
    running._run("worker", work)
    if with_beat:
        running._run("beat", beat)
    if with_watch:
        running._run("watch", lambda stop: supervisor.run(stop, supervisor.new_owner()))
    return running


def lead_links_to(url: str) -> None:
    """Point links in webhooks and mail to the port that answers, unless SETPOINT_URL is set."""
    if not env.text("SETPOINT_URL"):
        settings.BASE_URL = url


def _refusal(channel: HTTPChannel, request: Any) -> Task:
    """Answer a refused request in waitress's own words; config.middleware explains, unread, a body that is too long by
    its Content-Length."""
    length = request.headers.get("CONTENT_LENGTH", "")
    if isinstance(request.error, RequestEntityTooLarge) and length.isdigit() and int(length) > UPLOAD_LIMIT:
        return _Explained(channel, request)
    return ErrorTask(channel, request)


class _Explained(WSGITask):  # type: ignore[misc]  # waitress has no types
    def execute(self) -> None:
        self.set_close_on_finish()
        super().execute()


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    error_task_class = staticmethod(_refusal)


def leave() -> None:
    """Ends the process although something was left behind, as a kill would: rows are the queue, so nothing is lost.

    A normal end would first wait for every task that still runs in a pool of threads.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _kept_alive(name: str, part: Callable[[threading.Event], None], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            part(stop)
        except Exception:
            log.exception("a part of the server failed and starts again", part=name, seconds=RESTART_SECONDS)
        finally:
            connections.close_all()
        stop.wait(RESTART_SECONDS)


def _serve(server: Any) -> None:
    server.run()
    server.task_dispatcher.shutdown()


def work(stop: threading.Event) -> None:
    """A Celery worker without its command line, which would take over the main thread's signals and output."""
    if stop.is_set():
        return
    app.finalize()
    app.loader.import_default_modules()
    for signal in (signals.task_prerun, signals.task_postrun):
        signal.connect(_close_connections, weak=False, dispatch_uid=f"embedded-{signal.name}")
    worker = WorkController(
        app=app,
        pool="threads",
        queues=[*QUEUES],
        concurrency=settings.SETPOINT_WORKER_THREADS,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
    )
    if stop.is_set():
        return
    worker.start()
    if worker.exitcode and not stop.is_set():
        raise RuntimeError(f"the worker ended with status {worker.exitcode}")


def _close_connections(**_: Any) -> None:
    close_old_connections()


def beat(stop: threading.Event, schedule: Mapping[str, Any] | None = None) -> None:
    """Sends what `beat_schedule` lists, at its seconds. A late beat sends once, not once for every beat missed."""
    entries = app.conf.beat_schedule if schedule is None else schedule
    due = dict.fromkeys(entries, time.monotonic())
    while not stop.is_set():
        at = time.monotonic()
        for name, entry in entries.items():
            if due[name] <= at:
                app.send_task(entry["task"], args=entry.get("args", ()), **entry.get("options", {}))
                due[name] = at + float(entry["schedule"])
        stop.wait(max(0.01, min(due.values()) - time.monotonic()))
