"""A thread that lets a live cluster's events happen when the wall's clock reaches them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from simfleet.core import SimCluster

log = logging.getLogger(__name__)

LONGEST_PAUSE = 0.1
"""Seconds: an event that a call asked for meanwhile waits this much longer at most."""


class Ticker:
    """Ticks clusters until stopped. A context manager."""

    def __init__(self, clusters: Sequence[SimCluster]) -> None:
        self._clusters = clusters
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simfleet", daemon=True)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = LONGEST_PAUSE
            for cluster in self._clusters:
                try:
                    cluster.tick()
                except Exception:
                    # One event's bug must not stop a demo's world; what it was is in the log.
                    log.exception("an event of cluster %s failed", cluster.name)
                upcoming = cluster.next_event_in()
                pause = min(pause, LONGEST_PAUSE if upcoming is None else upcoming)
            self._stop.wait(max(pause, 0.001))
