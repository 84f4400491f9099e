"""A task that cannot be sent costs its message: never an error, and never a wait for each of many."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from celery import shared_task
from kombu.exceptions import EncodeError, OperationalError

from clusters import tasks as of_clusters
from compliance import tasks as of_compliance
from config import sending
from jobs import tasks
from jobs.engine.sweeping import CELERY, HELM


class Broker:
    """A broker behind `apply_async`: it counts what is tried, and raises `error`."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.tried = error, 0

    def take(self, *args: Any, **options: Any) -> str:
        self.tried += 1
        assert options["retry"] is False, "a retry waits once more for a broker that does not answer"
        if self.error is not None:
            raise self.error
        return "sent"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker(OperationalError("Timeout reading from socket"))
    monkeypatch.setattr(sending.DjangoTask, "apply_async", made.take)
    return made


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [0.0]
    monkeypatch.setattr(sending, "breaker", sending.Breaker(lambda: at[0]))
    return at


@pytest.mark.parametrize(
    "error", [OperationalError("refused"), OSError("reset"), RuntimeError("OOM command not allowed")]
)
def test_a_message_that_is_not_taken_is_no_error_and_the_next_ones_do_not_wait(
    broker: Broker, moment: list[float], error: Exception
) -> None:
    broker.error = error
    for _ in range(50):
        tasks.wake(tasks.UUID(int=1))
        of_compliance.soften_soon()
        tasks.sweep.delay()
    assert broker.tried == 1
    moment[0] += sending.REST_SECONDS * 1.2
    tasks.sweep.delay()
    tasks.sweep.delay()
    assert broker.tried == 2, "while one asks again the others do not"
    broker.error = None
    moment[0] += sending.REST_SECONDS * 1.2
    assert [tasks.sweep.delay() for _ in range(3)] == ["sent"] * 3


@pytest.mark.parametrize("error", [EncodeError("not JSON"), TypeError("no such argument")])
def test_a_message_that_no_broker_could_take_is_a_defect_and_raised(
    broker: Broker, moment: list[float], error: Exception
) -> None:
    broker.error = error
    with pytest.raises(type(error)):
        tasks.sweep.delay()


def test_what_a_person_asked_for_and_no_row_remembers_is_done_all_the_same(
    broker: Broker, moment: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, ...]] = []
    local = sending.LocalTasks(1, "asked-for")
    monkeypatch.setattr(sending, "asked_for", local)
    monkeypatch.setattr(of_clusters.refresh, "apply", lambda args, throw: done.append(args))
    of_clusters.refresh.delay("c-1")
    of_clusters.refresh.delay("c-2")
    tasks.sweep.delay()
    settle(local)
    assert done == [("c-1",), ("c-2",)]


def test_a_process_that_stands_in_keeps_its_tasks_by_queue(
    broker: Broker, moment: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, list[str]] = {CELERY: [], HELM: []}
    for queue, names in kept.items():
        local = sending.LocalTasks(1, queue)
        monkeypatch.setattr(local, "submit", lambda task, args, expires, names=names: names.append(task.name))
        monkeypatch.setitem(sending.standing_in, queue, local)
    tasks.sweep.delay()
    tasks.helm.delay("1")
    assert kept == {CELERY: ["jobs.tasks.sweep"], HELM: ["jobs.tasks.helm"]}
    assert not broker.tried


def test_a_broker_that_accepts_and_never_answers_counts_as_away() -> None:
    """A bound on each answer: else this would wait for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        elsewhere = sending.App("elsewhere", broker=url, set_as_current=False)
        assert not sending.answers(elsewhere)


# ── Threads of this process ───────────────────────────────────────────────────────────────────────────────────────────
ran: list[str] = []
started, gate = threading.Event(), threading.Event()


@shared_task(name="tests.local")
def note(word: str) -> None:
    ran.append(word)
    if word == "fails":
        raise RuntimeError("a defect of a task")
    started.set()
    if word == "first":
        assert gate.wait(60)


def settle(local: sending.LocalTasks) -> None:
    """Wait until all that was queued has run."""
    for _ in range(6000):
        if not local._waiting and local._free == local._live:
            break
        threading.Event().wait(0.01)
    assert local.close(60)


def test_what_waits_already_waits_once_and_what_fails_stops_nothing() -> None:
    ran.clear()
    started.clear()
    gate.clear()
    local = sending.LocalTasks(1, "test")
    local.submit(note, ("first",))
    assert started.wait(60)
    for word in ("fails", "again", "again", "first", "again"):
        local.submit(note, (word,))
    local.submit(note, ("late",), expires=1e-9)
    gate.set()
    settle(local)
    assert ran == ["first", "fails", "again", "first"], "what waits is bounded by what is due, not by how often"
    local.submit(note, ("after",))
    assert "after" not in ran
