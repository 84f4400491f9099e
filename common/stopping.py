"""SIGTERM and SIGINT as an Event that may be waited for."""

from __future__ import annotations

import queue
import signal
import threading


def at_signals() -> threading.Event:
    """Return an event that is set once SIGTERM or SIGINT asks this process to end. Call it from the main thread.

    Not set by the handler itself: that runs in the main thread between any two instructions, also in the middle of the
    Event's own wait, and would wait for the lock that its own thread holds, for ever.
    """
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put may interrupt itself
    stop = threading.Event()

    def wait() -> None:
        signals.get()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: signals.put(got))
    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
