"""kill -9 of worker, watch and agents at moments that a seed decides, each brought back as an orchestrator would."""

from __future__ import annotations

import random
import threading
import time

from tests.full.kwok_fleet import KwokFleet
from tests.full.processes import Installation

VICTIMS = ("worker", "worker-2", "watch", "agents")


class Chaos(threading.Thread):
    """Kills `kills` times, with pauses of up to `pause` seconds, then lets all live. `stop` it before judging."""

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
            victim, absence = self._random.choice(VICTIMS), self._random.choice((0.0, 0.0, 0.5, 2.5))
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
