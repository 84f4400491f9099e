"""kill -9 at moments that a seed decides, each brought back as an orchestrator would."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from tests.controlplane.plane import Plane
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.processes import Installation


class Chaos(threading.Thread):
    """Kills `kills` times, with pauses of up to `pause` seconds, then lets all live. `stop` it before judging."""

    VICTIMS: ClassVar[Sequence[str]] = ("worker", "worker-2", "watch", "agents")

    def __init__(self, setpoint: Installation, fleet: KwokFleet, seed: str, *, kills: int, pause: float = 2.0) -> None:
        super().__init__(name=f"chaos-{seed}", daemon=True)
        self._setpoint, self._fleet, self._random = setpoint, fleet, random.Random(seed)
        self._kills, self._pause = kills, pause
        self._over = threading.Event()
        self.done: list[str] = []

    def run(self) -> None:
        began = time.monotonic()
        for _ in range(self._kills):
            if self._over.wait(self._random.uniform(0.02, self._pause)):
                return
            victim, absence = self._random.choice(self.VICTIMS), self._random.choice((0.0, 0.0, 0.5, 2.5))
            self.done.append(f"{time.monotonic() - began:.2f} s: {victim}, back after {absence} s")
            self._kill(victim, absence)

    def stop(self) -> None:
        self._over.set()
        self.join(30)

    def _kill(self, victim: str, absence: float) -> None:
        if victim == "agents":
            self._fleet.kill()
            time.sleep(absence)
            self._fleet.start()
        else:
            self._setpoint.kill(victim)
            time.sleep(absence)
            self._setpoint.start(victim)


class HelmChaos(Chaos):
    """Kills during component rollouts: a running helm, the workers that run it or the steps, and the API server."""

    VICTIMS = ("helm-program", "helm-program", "helm-program", "helm", "helm-2", "worker", "kube-apiserver")
    WRITES = ("install", "upgrade", "rollback", "uninstall")
    PATIENCE_SECONDS = 8.0
    """A helm that writes runs for a second or two: it is waited for, or most kills would hit no process."""

    def __init__(
        self, setpoint: Installation, fleet: KwokFleet, plane: Plane, seed: str, *, kills: int, pause: float = 2.0
    ) -> None:
        super().__init__(setpoint, fleet, seed, kills=kills, pause=pause)
        self._plane = plane
        self.met = 0
        """How many helm programs were killed at work."""

    def _kill(self, victim: str, absence: float) -> None:
        if victim == "helm-program":
            self._kill_helm(self._random.choice((0.0, 0.1, 0.2, 0.4, 0.8)))
        elif victim == "kube-apiserver":
            self._plane.restart(victim, down_seconds=absence)
        else:
            super()._kill(victim, absence)

    def _kill_helm(self, later: float) -> None:
        deadline = time.monotonic() + self.PATIENCE_SECONDS
        while time.monotonic() < deadline and not self._over.wait(0.02):
            if pid := next(self._helms(), None):
                self._over.wait(later)
                with suppress(ProcessLookupError):  # it was done by then
                    os.kill(pid, signal.SIGKILL)
                    self.met += 1
                return

    def _helms(self) -> Iterator[int]:
        """Children of our own helm workers that write to the cluster."""
        workers = {self._setpoint.pid(name) for name in ("helm", "helm-2") if self._setpoint.is_running(name)}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, IndexError, KeyError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) in workers:
                    words = stat.with_name("cmdline").read_bytes().split(b"\0")
                    if words[1].decode() in self.WRITES:
                        yield int(stat.parent.name)
