"""Per-process mutex per rollout; a wake during a turn is remembered, and the rollout comes again.

Steps are claimed in sets, so any number may look at once and nothing is done twice. But each look asks the database
about all steps, and its calls go out in parallel anyway: a second thread would do the same work again, and keep it from
other rollouts. Processes know nothing of each other here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID


class SingleFlight:
    """`seconds`: after that a turn counts as lost, as a claim does, so that a thread that hangs stops nothing."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[UUID, float] = {}
        self._woken: set[UUID] = set()

    @contextmanager
    def turn(self, pk: UUID, again: Callable[[UUID], object]) -> Iterator[bool]:
        """Yield whether it is this thread's turn. `again` is called after it for a rollout that was woken meanwhile."""
        mine = self._take(pk)
        try:
            yield mine is not None
        finally:
            if mine is not None and self._end(pk, mine):
                again(pk)

    def _take(self, pk: UUID) -> float | None:
        with self._lock:
            at = self._clock()
            if self._until.get(pk, at) > at:
                self._woken.add(pk)
                return None
            self._until[pk] = at + self._seconds
            return self._until[pk]

    def _end(self, pk: UUID, mine: float) -> bool:
        with self._lock:
            if self._until.get(pk) != mine:  # another thread's turn by now
                return False
            del self._until[pk]
            was_woken = pk in self._woken
            self._woken.discard(pk)
            return was_woken
