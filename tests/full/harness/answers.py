"""Wait for answers to requests that the client has given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.signals import request_finished, request_started


@contextmanager
def answers_ended() -> Iterator[None]:
    """An answer may still be made when its page is closed: the next test's tables are not emptied before it is."""
    under_way: set[int] = set()

    def begun(**_: object) -> None:
        under_way.add(threading.get_ident())

    def ended(**_: object) -> None:
        under_way.discard(threading.get_ident())

    request_started.connect(begun)
    request_finished.connect(ended)
    yield
    until = time.monotonic() + 20
    time.sleep(0.1)  # a request that left before its page was closed arrives
    while under_way and time.monotonic() < until:
        time.sleep(0.02)
    request_started.disconnect(begun)
    request_finished.disconnect(ended)
    assert not under_way
