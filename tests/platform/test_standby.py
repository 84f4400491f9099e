"""A worker looks whether the broker brings sweeps, and what it does while it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as of_django
from django.db import OperationalError

from config import sending, standby
from config.celery import app
from config.standby import CELERY, GPUS, HELM
from jobs.engine import sweeping

pytestmark = pytest.mark.django_db
SWEEP_SECONDS = 5.0


@pytest.fixture(autouse=True)
def queued(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, tuple[str, ...]]]]:
    """Record the tasks that workers give to their own threads; no thread runs them."""
    submitted: list[tuple[str, tuple[str, ...]]] = []
    settings.SETPOINT_SWEEP_SECONDS = SWEEP_SECONDS
    app.loader.import_default_modules()
    monkeypatch.setattr(
        sending.LocalTasks, "submit", lambda self, task, args=(), expires=None: submitted.append((task.name, args))
    )
    monkeypatch.setattr(sending, "answers", lambda app: False)
    yield submitted
    sending.standing_in.clear()


def worker(*queues: str) -> standby.Standby:
    return standby.Standby(queues or (CELERY,))


def test_nothing_is_done_while_sweeps_arrive_or_have_not_been_missed_for_long(clock: Any, queued: list[Any]) -> None:
    of_celery = worker()
    for _ in range(20):
        clock.forward(SWEEP_SECONDS)
        sweeping.note_delivery(CELERY)
        assert not of_celery.turn(CELERY)
    clock.forward(SWEEP_SECONDS * (standby.MISSED_AWAY - 0.5))
    assert not of_celery.turn(CELERY)
    assert not queued
    assert CELERY not in sending.standing_in


def test_the_whole_schedule_is_carried_out_while_the_broker_is_away_and_ends_when_it_is_back(
    clock: Any, queued: list[Any]
) -> None:
    first, second = worker(), worker()
    clock.forward(SWEEP_SECONDS * standby.MISSED_AWAY)
    assert first.turn(CELERY)
    assert not second.turn(CELERY), "one worker is enough"
    of_others = worker(GPUS)
    assert of_others.turn(GPUS)
    assert {name for name, _ in queued} == {str(entry["task"]) for entry in of_django.CELERY_BEAT_SCHEDULE.values()}
    queued.clear()
    first.turn(CELERY)
    assert [name for name, _ in queued].count("jobs.tasks.sweep") == 1
    assert "jobs.tasks.expire_plans" not in {name for name, _ in queued}, "what has a minute is not done every second"
    clock.forward(1)
    sweeping.note_delivery(CELERY)
    assert not first.turn(CELERY)
    assert CELERY not in sending.standing_in
    assert sweeping.without_broker() is None


def test_a_broker_that_takes_messages_and_brings_none_is_waited_for_longer(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "answers", lambda app: True)
    of_celery = worker()
    clock.forward(SWEEP_SECONDS * (standby.MISSED_ANYHOW - 1))
    assert not of_celery.turn(CELERY)
    clock.forward(SWEEP_SECONDS)
    assert of_celery.turn(CELERY), "beat may be dead"


def test_helm_follows_the_other_queue_and_carries_out_what_is_due(
    clock: Any, queued: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "due_for_helm", lambda: [UUID(int=7)])
    of_helm, of_celery = worker(HELM), worker(CELERY)
    clock.forward(SWEEP_SECONDS * 100)
    assert not of_helm.turn(HELM)
    of_celery.turn(CELERY)
    queued.clear()
    assert of_helm.turn(HELM)
    assert queued == [("jobs.tasks.helm", (str(UUID(int=7)),))]


def test_without_any_broker_workers_never_wait_for_one(settings: Any) -> None:
    settings.SETPOINT_HAS_BROKER = False
    both = worker(CELERY, HELM)
    assert both.turn(CELERY)
    assert both.turn(HELM)
    sweeping.note_delivery(CELERY)
    assert both.turn(CELERY)


def test_a_worker_shows_that_it_looks_also_while_its_looks_fail(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alive"
    settings.SETPOINT_HAS_BROKER, settings.SETPOINT_STANDBY_ALIVE = False, str(file)
    settings.SETPOINT_SWEEP_SECONDS = 0
    looking = worker(CELERY)

    def look(queue: str) -> bool:
        looking._stop.set()
        raise OperationalError("the database is away")

    monkeypatch.setattr(looking, "turn", look)
    monkeypatch.setattr(looking, "_leave", lambda: None)  # it closes this test's connection
    looking._run()
    assert file.exists()


def test_an_embedded_server_has_its_own_worker_and_needs_none_to_stand_by() -> None:
    standby.begin(SimpleNamespace(app=app))
    assert not standby._running
