"""The Celery application. Tasks take ids and do one short slice; beat is the safety net, not the engine."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import structlog
from celery import signals

from common.requests import REQUEST_ID, new_request_id, request_id, working_on
from config import memory, private
from config.sending import App

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = App("setpoint", task_cls="config.sending:WakingTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

HEADER = "x_request_id"
_stacks: dict[str, ExitStack] = {}
"""By task id: what `task_prerun` opened and `task_postrun` closes, in the same thread."""


@signals.setup_logging.connect
def keep_our_logging(**_: Any) -> None:
    """Make Celery leave Django's LOGGING alone: it does so when this signal has a receiver."""


@signals.celeryd_init.connect
@signals.beat_init.connect
def keep_private(**_: Any) -> None:
    private.settle()


@signals.worker_ready.connect
def settle(**_: Any) -> None:
    """A reading of 40,000 GPUs makes a million objects: without this, collections are a quarter of its time."""
    memory.freeze()


@signals.celeryd_after_setup.connect
def stand_by(instance: Any, **_: Any) -> None:
    """A worker may start while its broker is away. Modules of apps are there only now."""
    import_module("config.standby").begin(instance)


@signals.worker_shutting_down.connect
def stop_standing_by(**_: Any) -> None:
    """End it in a thread: this signal comes from the handler of SIGTERM, and the worker's own tasks end meanwhile."""
    threading.Thread(target=import_module("config.standby").end, name="standby-end").start()


@signals.worker_ready.connect
@signals.beat_init.connect
def check_audit(**_: Any) -> None:
    """Modules of apps are there only now."""
    import_module("audit.sealing").check_at_start("worker or beat")


@signals.beat_init.connect
def stop_beat_in_order(sender: Any, **_: Any) -> None:
    """Replace the handlers of Celery's beat, which close its schedule and then raise SystemExit.

    Where a destructor or a callback swallows that exception, Celery's loop continues with a closed schedule and ends
    with a traceback and status 1. Here the loop is told to stop first, and closes its schedule itself.
    """

    def stop(*_: Any) -> None:
        sender.stop()
        raise SystemExit

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


@signals.before_task_publish.connect
def send_request_id(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """A task works for the request that caused it; the record and the logs of both say so."""
    if headers is not None:
        headers.setdefault(HEADER, request_id() or new_request_id())


@signals.task_prerun.connect
def take_request_id(task_id: str = "", task: Any = None, **_: Any) -> None:
    # Headers of our own arrive as attributes of the request.
    received = str(getattr(task.request, HEADER, None) or (task.request.headers or {}).get(HEADER) or "")
    identifier = received if REQUEST_ID.fullmatch(received) else new_request_id()
    stack = _stacks[task_id] = ExitStack()
    stack.enter_context(working_on(identifier))
    stack.enter_context(structlog.contextvars.bound_contextvars(request_id=identifier, task=task.name))


@signals.task_postrun.connect
def drop_request_id(task_id: str = "", **_: Any) -> None:
    if stack := _stacks.pop(task_id, None):
        stack.close()
