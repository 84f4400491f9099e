"""The audit record is followed while writers commit out of order and two sealers work: on PostgreSQL, in threads."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack

import pytest
from django.db import transaction

from audit import following, sealing
from audit.models import Record
from audit.services import record
from tests.full.nodes.test_two_writers_of_rows import PATIENCE_SECONDS, in_a_thread

pytestmark = pytest.mark.django_db(transaction=True)

WRITERS, EACH = 4, 25


class Follower:
    def __init__(self) -> None:
        self.cursor, self.seen = following.BEGINNING, list[Record]()

    def read(self, limit: int = 3) -> None:
        has_more = True
        while has_more:
            stretch = following.read(Record.objects.all(), after=self.cursor, limit=limit)
            self.seen += stretch.results
            self.cursor, has_more = stretch.cursor, stretch.has_more


def test_a_record_that_began_first_and_was_committed_last_is_neither_skipped_nor_waited_for() -> None:
    written, go, follower = threading.Event(), threading.Event(), Follower()

    def slow() -> None:
        with transaction.atomic():
            record(by="slow", action="a.b", target="x:1")
            written.set()
            assert go.wait(PATIENCE_SECONDS)

    with in_a_thread(slow):
        assert written.wait(PATIENCE_SECONDS)
        record(by="fast", action="a.b", target="x:2")
        sealing.seal_waiting()
        follower.read()
        assert [row.actor for row in follower.seen] == ["fast"]
        go.set()
    sealing.seal_waiting()
    follower.read()
    assert [row.actor for row in follower.seen] == ["fast", "slow"]
    assert follower.seen[1].at < follower.seen[0].at


@pytest.mark.parametrize("seed", range(3))
def test_with_writers_and_sealers_at_once_each_record_comes_once_in_the_order_of_its_number(seed: int) -> None:
    done, follower = threading.Event(), Follower()

    def write(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        for k in range(EACH):
            with transaction.atomic():
                record(by=f"w{number}", action="a.b", target=f"x:{k}")
                if chance.random() < 0.3:  # another transaction may overtake this one here
                    Record.objects.filter(actor=f"w{(number + 1) % WRITERS}").count()

    def seal() -> None:
        while not done.is_set():
            sealing.seal_waiting()

    with in_a_thread(seal), in_a_thread(seal), ExitStack() as writers:
        for number in range(WRITERS):
            thread = writers.enter_context(in_a_thread(lambda number=number: write(number)))
            assert thread is not None
        while Record.objects.sealed().count() < WRITERS * EACH:
            follower.read()
        done.set()
    follower.read()
    assert [row.seq for row in follower.seen] == list(range(1, WRITERS * EACH + 1))
    assert len({row.pk for row in follower.seen}) == WRITERS * EACH
