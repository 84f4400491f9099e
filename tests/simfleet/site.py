"""A live simulated cluster behind its TLS door, in hurried time, and the real helm program pointed at it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from components.helm.client import HOOK_SECONDS
from config.demo import packing
from simfleet import SimCluster, WallClock
from simfleet.live import Ticker
from tests.contract.door import Entrance
from tests.controlplane.plane import kubeconfig

BROKEN = Path(__file__).resolve().parents[1] / "charts"
SPEED = 20.0
"""Simulated seconds in one of the wall's."""
T = TypeVar("T")


def helm_program() -> str:
    return str(Path(sys.executable).with_name("helm"))


class Helm:
    """helm with a home of its own, and charts packed as a repository would serve them."""

    def __init__(self, folder: Path, credentials: Any) -> None:
        self._folder = folder
        (folder / "kubeconfig").write_text(kubeconfig(credentials))

    def __call__(self, *words: str, fails: bool = False) -> str:
        """Run helm; return its output, or the error text of a call that must fail."""
        environment = {"HOME": str(self._folder), "KUBECONFIG": str(self._folder / "kubeconfig"), "PATH": "/usr/bin"}
        command = [helm_program(), *words]
        limit = HOOK_SECONDS + 60  # helm gives up on a hook before: killed, it would leave its release pending for all
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
        assert (done.returncode != 0) is fails, f"helm {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def chart(self, name: str) -> str:
        """Path of its archive."""
        own = packing.CHARTS / name
        folder = own if own.is_dir() else BROKEN / name
        archive = self._folder / f"{name}.tgz"
        archive.write_bytes(packing.pack(folder))
        return str(archive)

    def install(self, name: str, *words: str, release: str = "", namespace: str = "", fails: bool = False) -> str:
        """Install or upgrade the chart `name`, by default as a release and into a namespace of its name."""
        place = ("--namespace", namespace or name, "--create-namespace")
        return self("upgrade", "--install", release or name, self.chart(name), *place, *words, fails=fails)

    def history(self, release: str, namespace: str = "") -> list[tuple[int, str]]:
        entries = json.loads(self("history", release, "--namespace", namespace or release, "--output", "json"))
        return [(entry["revision"], entry["status"]) for entry in entries]


class Site:
    def __init__(self, folder: Path, sim: SimCluster | None = None) -> None:
        self.sim = sim or SimCluster(seed=1, clock=WallClock(SPEED), live=True)
        self._entrance = Entrance(self.sim)
        self._ticker = Ticker([self.sim])
        self._ticker.start()
        self.fleet = self._entrance.fleet()
        self.credentials = self._entrance.credentials()
        self.helm = Helm(folder, self.credentials)

    def until(self, is_so: Callable[[], T], *, locked: bool = True) -> T:
        """Wait until `is_so` answers something true; return that. 30 s are ten simulated minutes, on an idle machine.

        `locked`: nothing moves meanwhile. Not for calls through the door, whose threads need the lock.
        """
        deadline = time.monotonic() + 30
        while True:
            with self.sim.lock if locked else nullcontext():
                result = is_so()
            if result:
                return result
            assert time.monotonic() < deadline, self.sim
            time.sleep(0.02)

    def object(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        with self.sim.lock:
            return self.sim.store.get(plural, name, namespace).copy()

    def status(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        return self.object(plural, name, namespace).get("status") or {}

    def inventory(self) -> set[tuple[str, str, str]]:
        """Everything there is but nodes' own and Events: what a release could leave behind."""
        apart = ("leases", "events", "namespaces")
        with self.sim.lock:
            store = self.sim.store
            return {(p, *s.key) for p in list(store.resources) if p not in apart for s in store.all(p)}

    def close(self) -> None:
        self._ticker.stop()
        self._entrance.close()
