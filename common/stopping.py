"""SIGTERM and SIGINT as an Event that may be waited for."""

from __future__ import annotations

import os
import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def at_signals() -> threading.Event:
    """Return an event that is set once SIGTERM or SIGINT asks this process to end. Call it from the main thread.

    Not set by a handler in Python. That runs in the main thread between two instructions: in the middle of the Event's
    own wait it would wait for the lock that its own thread holds, and where the signal comes just before the main
    thread blocks, or to another thread, it does not run at all. The interpreter writes to the descriptor at once.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    stop = threading.Event()

    def wait() -> None:
        while os.read(reading, 1)[0] not in SIGNALS:
            pass
        stop.set()

    for number in SIGNALS:
        signal.signal(number, lambda *_: None)  # only signals with a handler are written
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
