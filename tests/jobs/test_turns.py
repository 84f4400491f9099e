"""One thread of a process looks at a rollout, no wake is forgotten, and a thread that hangs stops nothing."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs import tasks
from jobs.engine import reconcile
from jobs.single_flight import SingleFlight

ONE = UUID(int=1)
SECONDS = 30.0


class Ticks:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def again() -> list[UUID]:
    return []


@pytest.fixture
def turns(ticks: Ticks) -> SingleFlight:
    return SingleFlight(SECONDS, ticks)


def test_who_comes_meanwhile_has_no_turn_and_the_rollout_comes_again_once(turns, again):
    with turns.turn(ONE, again.append) as first:
        for _ in range(3):
            with turns.turn(ONE, again.append) as second:
                assert not second
        assert again == [], "not while it is under way"

    assert (first, again) == (True, [ONE])


def test_a_rollout_that_nobody_woke_does_not_come_again(turns, again):
    with turns.turn(ONE, again.append):
        pass
    with turns.turn(ONE, again.append) as is_ours:
        assert is_ours

    assert again == []


def test_rollouts_do_not_wait_for_each_other(turns, again):
    with turns.turn(ONE, again.append), turns.turn(uuid4(), again.append) as other:
        assert other
    assert again == []


def test_a_turn_that_ends_in_an_error_is_over_and_who_woke_it_is_not_forgotten(turns, again):
    def fails() -> None:
        with turns.turn(ONE, again.append):
            turns.turn(ONE, again.append).__enter__()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()

    assert again == [ONE]
    with turns.turn(ONE, again.append) as is_ours:
        assert is_ours


def test_a_thread_that_hangs_loses_its_turn_and_does_not_end_that_of_the_next(turns, again, ticks):
    hangs = turns.turn(ONE, again.append)
    hangs.__enter__()
    ticks.at += SECONDS
    with turns.turn(ONE, again.append) as next_one:
        assert next_one
        hangs.__exit__(None, None, None)  # it comes back
        with turns.turn(ONE, again.append) as third:
            assert not third, "the second one's turn goes on"

    assert again == [ONE]


def test_threads_at_once_look_one_after_the_other_and_after_the_last_wake_somebody_looks(monkeypatch):
    """The reason for a wake was written before it: a look must begin after the last one."""
    pk = uuid4()
    looking, most, written, seen = [], [0], [0], [0]

    def look(_: UUID, rest: object) -> None:
        looking.append(1)
        most[0] = max(most[0], len(looking))
        seen[0] = written[0]
        time.sleep(0.001)
        looking.pop()

    monkeypatch.setattr(tasks.reconcile, "run", look)
    monkeypatch.setattr(tasks.component_runner, "due_steps", lambda pk, kind: [])
    monkeypatch.setattr(tasks.component_runner, "seconds_to_next_check", lambda pk: None)
    monkeypatch.setattr(tasks, "wake", lambda pk: tasks.advance(str(pk)))

    def news() -> None:
        for _ in range(50):
            written[0] += 1
            tasks.advance(str(pk))

    threads = [threading.Thread(target=news) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert most == [1]
    assert seen == written


def test_between_two_slices_it_rests_for_what_the_first_took_and_after_the_last_not(world, monkeypatch):
    rests: list[float] = []
    slices: list[bool] = []
    advance = reconcile.advance

    def counted(pk: UUID, **given: Any) -> bool:
        slices.append(advance(pk, **given))
        return slices[-1]

    monkeypatch.setattr(reconcile, "advance", counted)
    reconcile.run(world.started().pk, rest=rests.append)

    assert slices[-1] is False
    assert len(rests) == len(slices) - 1 > 0
    assert all(0 < seconds < 60 for seconds in rests), "of CPU, not of the test's clock"


def test_a_rest_is_never_longer_than_a_person_waits(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(tasks.time, "sleep", slept.append)
    monkeypatch.setattr(tasks.reconcile, "run", lambda pk, rest: [rest(0.2), rest(30.0)])
    monkeypatch.setattr(tasks.component_runner, "due_steps", lambda pk, kind: [])
    monkeypatch.setattr(tasks.component_runner, "seconds_to_next_check", lambda pk: None)

    tasks.advance(str(uuid4()))

    assert slept == [0.2, tasks.LONGEST_REST_SECONDS]


def test_a_thread_stays_for_a_component_that_is_ready_soon_and_then_lets_others_have_their_turn(monkeypatch):
    """The sweep would see it seconds later; but a component that takes minutes keeps no thread."""
    pk, clock = uuid4(), [0.0]
    looks: list[float] = []
    woken: list[UUID] = []
    monkeypatch.setattr(tasks.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(tasks.time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    monkeypatch.setattr(tasks.reconcile, "run", lambda pk, rest: looks.append(clock[0]))
    monkeypatch.setattr(tasks.component_runner, "due_steps", lambda pk, kind: [])
    monkeypatch.setattr(tasks, "wake", woken.append)

    until_ready = iter((0.25, 0.5, None))
    monkeypatch.setattr(tasks.component_runner, "seconds_to_next_check", lambda pk: next(until_ready))
    tasks.advance(str(pk))
    assert (looks, woken) == ([0.0, 0.25, 0.75], [])

    monkeypatch.setattr(tasks.component_runner, "seconds_to_next_check", lambda pk: 1.0)
    clock[:], looks[:] = [0.0], []
    tasks.advance(str(pk))
    assert clock[0] <= tasks.STAYS_SECONDS
    assert (len(looks), woken) == (4, [pk])
