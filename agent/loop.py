"""The agent's life: one thread watches the node's object, the other works on it."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from agent.client import Client, RequestRefused, Unavailable
from agent.hold import Hold
from agent.identity import Identity
from agent.reconcile import Reconciler
from agent.restarts import Confirmed
from contract.nodetuning import Malformed, Spec, Status

LONGEST_BACKOFF_SECONDS = 60.0
OBSERVE_SECONDS = 60.0
"""How often all observed keys are read again; those in `settings` are read at every look."""


def log(message: str, **more: Any) -> None:
    """One JSON line on stderr."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(json.dumps({"time": stamp, "message": message, **more}) + "\n")
    sys.stderr.flush()


def jittered(seconds: float) -> float:
    """0.9 to 1.1 of it, so that a fleet that starts together does not stay together."""
    return seconds * (0.9 + 0.2 * int.from_bytes(os.urandom(2)) / 65535)


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row: 1, doubling, at most a minute, with jitter."""
    return jittered(min(LONGEST_BACKOFF_SECONDS, 2.0 ** min(failures - 1, 10)))


class Watcher(threading.Thread):
    """Puts each new state of the node's object into `arrivals`: the object, or None while there is none."""

    def __init__(self, client: Client, node: str, arrivals: queue.SimpleQueue[dict[str, Any] | None]) -> None:
        super().__init__(name="watch", daemon=True)
        self._client = client
        self._node = node
        self._arrivals = arrivals

    def run(self) -> None:
        failures = 0
        while True:
            try:
                tuning, version = self._client.list_one(self._node)
                self._arrivals.put(tuning)
                failures = 0
                self._follow(version)
            except Exception as error:  # of every kind: without this thread the agent is deaf, and looks alive
                if isinstance(error, RequestRefused) and error.code == 410:
                    continue  # the resource version is too old: list again
                failures += 1
                log("cannot watch the node's object", error=str(error) or repr(error), failures=failures)
                time.sleep(backoff(failures))

    def _follow(self, version: str) -> None:
        """Watch again and again from where the last one ended. Raises what ends it."""
        while True:
            started = time.monotonic()
            for event in self._client.watch_one(self._node, version):
                received = event.get("object") or {}
                version = str(received.get("metadata", {}).get("resourceVersion", version))
                if event.get("type") == "DELETED":
                    self._arrivals.put(None)
                elif event.get("type") in ("ADDED", "MODIFIED"):
                    self._arrivals.put(received)
            if time.monotonic() - started < 1.0:
                time.sleep(jittered(1.0))  # a server that ends watches at once must not be asked in a tight loop


class Loop:
    def __init__(
        self,
        client: Client,
        reconciler: Reconciler,
        identity: Identity,
        *,
        verify_seconds: float,
        lease_seconds: float,
        hold: Hold | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._reconciler = reconciler
        self._identity = identity
        self._verify_seconds = verify_seconds
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._object: dict[str, Any] | None = None
        self._known: tuple[str, int] | None = None
        """UID and generation that were reconciled last."""
        self._readable = False
        self._status: Status | None = None
        self._published: dict[str, Any] | None = None
        self._failures = 0
        self._publish_at = self._verify_at = self._observe_at = self._lease_at = 0.0
        self._hold = hold
        self._hold_at: float | None = 0.0 if hold else None
        """None when this node is not held, and not looked at again."""

    def run(
        self,
        arrivals: queue.SimpleQueue[dict[str, Any] | None],
        stopping: threading.Event,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Work until `stopping`; wake it by putting None into `arrivals`. Calls `alive` at every turn."""
        while not stopping.is_set():
            alive()
            due = [self._lease_at] if self._hold_at is None else [self._lease_at, self._hold_at]
            if self._readable:
                due.append(self._verify_at)
            if self._status is not None and self._unpublished():
                due.append(self._publish_at)
            try:
                arrived = arrivals.get(timeout=max(0.0, min(due) - self._clock()))
            except queue.Empty:
                pass
            else:
                if stopping.is_set():
                    return
                self._arrive(arrived)
            self._tick()

    def _arrive(self, received: dict[str, Any] | None) -> None:
        if received is None:
            if self._object is not None:
                log("the node's object is gone: nothing is asked of this node")
            self._object, self._known, self._readable, self._status = None, None, False, None
            self._reconciler.forget()
            return
        metadata = received.get("metadata", {})
        known = (str(metadata.get("uid", "")), int(metadata.get("generation", 0)))
        if self._known is None or self._known[0] != known[0]:
            self._published = received.get("status") or {}
            try:
                self._reconciler.remember(Status.from_json(self._published))
            except Malformed as error:
                log("the status in the cluster cannot be read, and is replaced", error=str(error))
        self._object = received
        if known != self._known:
            self._known = known
            self._reconcile(received, known[1])

    def _reconcile(self, tuning: dict[str, Any], generation: int) -> None:
        try:
            spec = Spec.from_json(tuning.get("spec") or {})
        except Malformed as error:
            self._readable = False
            self._status = self._reconciler.refuse("BadSpec", str(error), generation)
            return
        self._readable = True
        self._status = self._reconciler.reconcile(spec, generation)
        now = self._clock()
        self._verify_at, self._observe_at = now + self._verify_seconds, now + jittered(OBSERVE_SECONDS)
        self._publish_at = 0.0
        log("reconciled", generation=generation, step=spec.step, states=_count(self._status))
        self._publish()
        after = self._reconciler.restart(self._confirm, self._announce)
        if after is not None:
            self._status = after

    def _tick(self) -> None:
        now = self._clock()
        if self._readable and now >= self._verify_at:
            observe = now >= self._observe_at
            self._status = self._reconciler.verify(observe=observe)
            if observe:
                self._observe_at = now + jittered(OBSERVE_SECONDS)
            self._verify_at = now + self._verify_seconds
            after = self._reconciler.restart(self._confirm, self._announce)
            self._status = after or self._status
        self._publish()
        if self._clock() >= self._lease_at:
            self._renew()
        if self._hold and self._hold_at is not None and self._clock() >= self._hold_at:
            seconds, words = self._hold.look()
            self._hold_at = None if seconds is None else self._clock() + jittered(seconds)
            if words:
                log(words)

    def _confirm(self) -> Confirmed | None:
        """The object as the API server has it now; None if it cannot be had, and then nothing is restarted."""
        try:
            tuning, date = self._client.tuning(self._identity.node)
            if tuning is None or self._known is None or tuning["metadata"]["uid"] != self._known[0]:
                return None
            return Confirmed(Spec.from_json(tuning.get("spec") or {}), date)
        except (Unavailable, RequestRefused, Malformed, KeyError, OSError) as error:
            log("cannot confirm a restart, so nothing is restarted", error=str(error))
            return None

    def _announce(self, status: Status) -> None:
        self._status = status
        log("restarting", restart=status.restart.id if status.restart else "")
        self._publish()

    # ── telling the cluster ───────────────────────────────────────────────────────────────────────────────────────
    def _unpublished(self) -> dict[str, Any] | None:
        """The status to write, None while the cluster has it: a quiet node writes nothing."""
        if self._status is None:
            return None
        fresh = {k: v for k, v in self._status.to_json().items() if v is not None}
        return None if fresh == self._published else fresh

    def _publish(self) -> None:
        fresh = self._unpublished()
        if fresh is None or self._known is None or self._clock() < self._publish_at:
            return
        try:
            self._client.write_status(self._identity.node, self._known[0], fresh)
            self._published, self._failures = fresh, 0
        except (Unavailable, RequestRefused, OSError) as error:
            self._failures += 1
            self._publish_at = self._clock() + backoff(self._failures)
            log("cannot write the status", error=str(error), failures=self._failures)

    def _renew(self) -> None:
        self._lease_at = self._clock() + jittered(self._lease_seconds)
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        try:
            self._client.renew_lease(self._identity.node, self._identity.uid, int(self._lease_seconds * 3), stamp)
        except (Unavailable, RequestRefused, OSError) as error:
            self._lease_at = self._clock() + min(self._lease_seconds, backoff(3))
            log("cannot renew the lease", error=str(error))


def _count(status: Status) -> dict[str, int]:
    counts: dict[str, int] = {}
    for setting in status.settings:
        counts[setting.state] = counts.get(setting.state, 0) + 1
    return counts
