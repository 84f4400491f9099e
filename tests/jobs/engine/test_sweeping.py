"""One worker sweeps while the broker brings nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.clock import now
from jobs import tasks
from jobs.engine import sweeping
from jobs.engine.sweeping import CELERY, HELM, LEASE
from jobs.models import Sweeper

pytestmark = pytest.mark.django_db


def holders(queue: str = CELERY) -> list[str]:
    return [name for name in ("first", "second", "third") if sweeping.claim(queue, name)]


def test_one_worker_of_a_queue_sweeps_and_a_killed_one_is_replaced_when_its_lease_ends(clock: Any) -> None:
    assert holders() == ["first"]
    assert sweeping.claim(HELM, "second"), "each queue has a worker of its own"
    clock.forward(LEASE.total_seconds() - 1)
    assert holders() == ["first"], "renewed"
    clock.forward(LEASE.total_seconds() + 1)
    assert sweeping.without_broker() is None
    assert [name for name in ("second", "first", "third") if sweeping.claim(CELERY, name)] == ["second"]


def test_a_worker_that_leaves_makes_room_at_once_and_takes_no_others_lease_along() -> None:
    sweeping.claim(CELERY, "first")
    sweeping.release(CELERY, "second")
    assert holders() == ["first"]
    sweeping.release(CELERY, "first")
    assert sweeping.claim(CELERY, "second")


def test_it_ends_with_a_sweep_over_the_broker_and_begins_anew_with_its_own_time(clock: Any) -> None:
    began = now()
    sweeping.claim(CELERY, "first")
    clock.forward(5)
    sweeping.claim(CELERY, "first")
    lease = sweeping.without_broker()
    assert lease is not None
    assert lease.since == began
    assert not sweeping.is_delivered_again(CELERY)
    sweeping.note_delivery(CELERY)
    assert sweeping.is_delivered_again(CELERY)
    clock.forward(60)
    sweeping.claim(CELERY, "second")  # the first was killed before it released its lease
    lease = sweeping.without_broker()
    assert lease is not None
    assert lease.since == now()


def test_sweeps_are_missed_from_the_last_delivery_and_from_a_workers_own_start(clock: Any, settings: Any) -> None:
    settings.SETPOINT_SWEEP_SECONDS = 5
    started = now()
    assert sweeping.silent_sweeps(CELERY, started) == 0, "a worker that has just started has missed nothing"
    sweeping.note_delivery(CELERY)
    clock.forward(20)
    assert sweeping.silent_sweeps(CELERY, started - timedelta(hours=1)) == 4
    assert sweeping.silent_sweeps(CELERY, now() - timedelta(seconds=10)) == 2


def test_only_a_sweep_that_came_over_the_broker_counts_as_delivered() -> None:
    tasks.sweep()
    tasks.sweep.apply()
    assert not Sweeper.objects.exists()
    tasks.sweep.push_request(called_directly=False, is_eager=False)
    try:
        tasks.sweep.run()
    finally:
        tasks.sweep.pop_request()
    assert Sweeper.objects.get(queue=CELERY).delivered_at is not None
