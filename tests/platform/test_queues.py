"""The queue of each task: readings of GPUs, and helm, never in a worker that carries out steps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Task
from django.conf import settings

from config import embedded, sending, standby
from config.celery import app
from config.doctor import stores
from config.standby import CELERY, GPUS, HELM
from gpus import tasks as of_gpus

FOR_STEPS = {"gpus.tasks.check_gates", "gpus.tasks.guard"}
"""They read rows, and a rollout's next batch waits for them."""


@pytest.fixture(autouse=True)
def loaded() -> None:
    app.loader.import_default_modules()


def queue_of(task: str) -> str:
    return sending.queue_of(app, task)


def tasks_of_gpus() -> dict[str, Any]:
    return {name: task for name, task in app.tasks.items() if name.startswith("gpus.tasks.")}


def test_no_worker_of_steps_takes_a_reading_or_a_computation_over_gpus() -> None:
    assert {name: queue_of(name) for name in tasks_of_gpus()} == {
        name: CELERY if name in FOR_STEPS else GPUS for name in tasks_of_gpus()
    }


def test_what_rollouts_wait_for_is_not_behind_a_reading() -> None:
    others = {name for name in app.tasks if not name.startswith("gpus.tasks.")}
    assert {*tasks_of_gpus()} > FOR_STEPS
    assert {queue_of(name) for name in others | FOR_STEPS} == {CELERY, HELM}


def test_every_queue_is_known_wherever_queues_are_listed() -> None:
    used = {queue_of(name) for name in app.tasks}
    assert used == set(standby.QUEUES) == set(standby.THREADS) == set(stores.QUEUES) == set(embedded.QUEUES)


def test_each_entry_of_the_schedule_is_swept_by_the_worker_of_its_own_queue() -> None:
    names = [name for queue in standby.QUEUES for name, _ in standby.scheduled(queue)]
    assert sorted(names) == sorted(settings.CELERY_BEAT_SCHEDULE)
    assert {entry["task"] for _, entry in standby.scheduled(CELERY)} >= {"jobs.tasks.sweep", "gpus.tasks.check_gates"}
    assert "gpus.tasks.tick" in {entry["task"] for _, entry in standby.scheduled(GPUS)}


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No broker: what a task sends is carried out only if its own process takes it."""
    monkeypatch.setattr(settings, "SETPOINT_HAS_BROKER", False)
    yield
    sending.standing_in.clear()


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("queue", standby.QUEUES)
def test_without_a_broker_a_task_of_the_schedule_reaches_those_that_it_sends(
    queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of one queue has no way to the worker of another but rows, and no row says that a tick was sent."""
    kept: list[str] = []
    local = sending.LocalTasks(1, queue)
    monkeypatch.setattr(local, "submit", lambda task, args, expires: kept.append(task.name))
    sending.standing_in[queue] = local
    for module in filter(inspect.ismodule, vars(of_gpus).values()):
        if hasattr(module, "due"):
            monkeypatch.setattr(module, "due", lambda: [1])
        if hasattr(module, "reconcile"):
            monkeypatch.setattr(module, "reconcile", lambda: None)
    monkeypatch.setattr(of_gpus.studies, "adopt", lambda: None)
    of_this = [entry["task"] for _, entry in standby.scheduled(queue) if entry["task"].startswith("gpus.tasks.")]
    for name in of_this:
        task: Task = app.tasks[name]
        if (sends := inspect.getsource(task.run).count("apply_async")) and name != "gpus.tasks.forget":
            kept.clear()
            task.run()
            assert len(kept) == sends, f"{name}: what it sends is lost"
