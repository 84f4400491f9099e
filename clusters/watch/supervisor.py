"""Keeps rows true: which process watches which cluster, and what is done for a watched cluster now and then.

A lease on the Cluster row decides (a conditional update, so two processes never both win); several processes share the
clusters by their weight (clusters.watch.sharing), and a dead one's are taken over when its leases end.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.db import connections as databases
from django.db.models import Q

from clusters.connection import registry
from clusters.fleet import CredentialsRefused, Fleet, FleetError, Untrusted
from clusters.inventory import enrolment, inspection, reachability
from clusters.inventory.inspection import refresh
from clusters.models import Cluster
from clusters.watch import sharing
from clusters.watch.anti_entropy import AntiEntropy
from clusters.watch.devices import DeviceWatch
from clusters.watch.following import Following
from clusters.watch.streams import KINDS, Stream, Watched, WatchTimings
from clusters.watch.writer import Writer
from common.clock import now

__all__ = ["Watch", "WatchTimings", "new_owner", "refresh", "run"]

log = logging.getLogger(__name__)

ACQUIRED_AT_ONCE = 4
"""Clusters taken in one tick, so that processes started together share them."""
CHORES_AT_ONCE = 8
JOIN_SECONDS = 2.0


def run(stop: threading.Event, owner: str, pace: WatchTimings | None = None, alive_file: Path | None = None) -> None:
    """Watch clusters until `stop`. Returns after letting them go, so that another process takes them at once."""
    Watch(owner, pace or WatchTimings(), alive_file=alive_file).run(stop)


def new_owner() -> str:
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass
class _HeldCluster:
    """One cluster in this process: its threads, its client, and when its chores are due."""

    watched: Watched
    resources: ExitStack
    threads: list[threading.Thread]
    due: dict[str, float]
    following: Following
    comparing: AntiEntropy
    devices: DeviceWatch
    running: dict[str, Future[None]] = field(default_factory=dict)
    """By group of chores: a long look at all pods keeps no new node waiting."""


@dataclass
class Watch:
    owner: str
    pace: WatchTimings
    held: dict[UUID, _HeldCluster] = field(default_factory=dict)
    alive_file: Path | None = None
    """Touched after each tick that did its work: what a health check looks at."""

    def __post_init__(self) -> None:
        self.writer = Writer(self.pace)
        self.lease = timedelta(seconds=settings.SETPOINT_LEASE_SECONDS)
        self._renewed = 0.0
        self._chores = ThreadPoolExecutor(CHORES_AT_ONCE, thread_name_prefix="watch-chore")

    def run(self, stop: threading.Event) -> None:
        done = threading.Event()
        writing = threading.Thread(target=self.writer.run, args=(done,), name="watch-writer", daemon=True)
        writing.start()
        try:
            while not stop.is_set():
                close_old_connections()
                self.tick()
                stop.wait(self.pace.tick * random.uniform(0.8, 1.2))  # noqa: S311
        finally:
            self._let_go_of_all()
            done.set()
            writing.join(JOIN_SECONDS)
            self._chores.shutdown(wait=False, cancel_futures=True)
            databases.close_all()

    def tick(self) -> None:
        """Renew, take what is free, do what is due. A database that is away costs ticks, not the process."""
        try:
            self._renew()
            self._acquire()
            self._do_chores()
            if self.alive_file:
                with suppress(OSError):  # a file that cannot be written is unhealthy, and no reason to end watches
                    self.alive_file.touch()
        except DatabaseError:
            log.exception("the watch could not reach the database")
            if time.monotonic() - self._renewed > self.lease.total_seconds():
                self._let_go_of_all(release=False)  # the leases have run out: another process may hold them

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────
    def _renew(self) -> None:
        if time.monotonic() - self._renewed < self.lease.total_seconds() / 3:
            return
        began, at = time.monotonic(), now()
        sharing.register(self.owner, self.lease)
        mine = Cluster.objects.filter(watch_owner=self.owner, pk__in=list(self.held))
        mine.update(watch_lease_until=at + self.lease)
        self._renewed = began
        kept = dict(mine.values_list("pk", "credential_set_at"))
        for pk, entry in list(self.held.items()):
            if kept.get(pk) != entry.watched.cluster.credential_set_at:
                log.info(
                    "letting go of %s: it was taken over, disconnected or given another credential",
                    entry.watched.cluster,
                )
                self._let_go(pk)
        self._balance()

    def _balance(self) -> None:
        """Hand clusters over that are above this process's share, to processes that came later or have less."""
        if given := sharing.balance(self.owner, list(self.held), self._let_go, self.lease):
            log.info("%d clusters were handed over to processes that watch less", given)

    def _acquire(self) -> None:
        """Acquire clusters that were handed over to this process, and some of those that are free."""
        candidates = Cluster.objects.filter(self._free()).exclude(pk__in=list(self.held)).order_by("?")
        handed = list(candidates.filter(watch_owner=self.owner).values_list("pk", flat=True)[: sharing.AT_ONCE])
        free = candidates.exclude(watch_owner=self.owner).values_list("pk", flat=True)[:ACQUIRED_AT_ONCE]
        for pk in (*handed, *free):
            if self.win(pk) and (cluster := Cluster.objects.filter(pk=pk).first()):
                self._start(cluster)

    def win(self, pk: UUID) -> bool:
        """Take a cluster's lease if it is free at this very moment: of two processes, the database lets one."""
        until = now() + self.lease
        return bool(Cluster.objects.filter(self._free(), pk=pk).update(watch_owner=self.owner, watch_lease_until=until))

    def _free(self) -> Q:
        return (
            Q(watch_owner="") | Q(watch_lease_until=None) | Q(watch_lease_until__lt=now()) | Q(watch_owner=self.owner)
        )

    def _start(self, cluster: Cluster) -> None:
        resources = ExitStack()
        try:
            fleet = resources.enter_context(registry.dedicated(cluster))
        except FleetError as error:  # an unreadable credential: tried again at every tick, said once
            is_refused = isinstance(error, CredentialsRefused)
            if reachability.lost(cluster, str(error), since=now(), is_refused=is_refused):
                log.error("%s cannot be watched: %s", cluster, error)
            return
        watched = Watched(cluster, fleet)
        streams = [Stream(watched, kind, self.writer.post, self.pace) for kind in KINDS]
        threads = [
            threading.Thread(target=stream.run, name=f"watch-{cluster.name}-{stream.kind}", daemon=True)
            for stream in streams
        ]
        soon = time.monotonic() + random.uniform(0, min(5.0, self.pace.leases))  # noqa: S311
        due = {"leases": soon, **dict.fromkeys(("enrol", "inspect", "follow", "devices"), time.monotonic())}
        due["compare_turn"] = soon
        following = Following(cluster, self.pace)
        resources.callback(following.close)
        devices = DeviceWatch(watched, self.writer.post, self.pace)
        comparing = AntiEntropy(watched, self.pace)
        self.held[cluster.pk] = _HeldCluster(watched, resources, threads, due, following, comparing, devices)
        for thread in threads:
            thread.start()

    def _let_go(self, pk: UUID) -> None:
        entry = self.held.pop(pk)
        entry.watched.stop.set()
        entry.resources.close()  # ends the watches that threads wait in

    def _let_go_of_all(self, *, release: bool = True) -> None:
        threads = [thread for entry in self.held.values() for thread in (*entry.threads, *entry.devices.threads)]
        for pk in list(self.held):
            self._let_go(pk)
        for thread in threads:
            thread.join(JOIN_SECONDS / len(threads))
        if release:
            try:
                sharing.unregister(self.owner)  # first: nothing more is handed over to it
                Cluster.objects.filter(watch_owner=self.owner).update(watch_owner="", watch_lease_until=None)
            except DatabaseError:
                log.warning("leases could not be given back; they end by themselves within %s", self.lease)

    # ── chores ────────────────────────────────────────────────────────────────────────────────────────────────────
    def _do_chores(self) -> None:
        at = time.monotonic()
        for entry in self.held.values():
            if not entry.watched.nodes_known.is_set():
                continue
            due: dict[str, list[str]] = {}
            for name, when in entry.due.items():
                if when <= at:
                    due.setdefault("long" if name == "compare_turn" else "short", []).append(name)
            for group, names in due.items():
                if (running := entry.running.get(group)) and not running.done():
                    continue
                for name in names:
                    entry.due[name] = at + getattr(self.pace, name) * random.uniform(0.9, 1.1)  # noqa: S311
                entry.running[group] = self._chores.submit(self._do, entry, names)

    def _do(self, entry: _HeldCluster, due: list[str]) -> None:
        watched = entry.watched
        chores: dict[str, Callable[[Cluster, Fleet], object]] = {
            "inspect": inspection.inspect,
            "enrol": enrolment.enrol,
            "leases": _leases,
            "follow": lambda cluster, fleet: entry.following.turn(),
            "devices": lambda cluster, fleet: entry.devices.turn(),
            "compare_turn": lambda cluster, fleet: entry.comparing.turn(),
        }
        try:
            for name, chore in chores.items():
                if name not in due or watched.stop.is_set():
                    continue
                try:
                    chore(watched.cluster, watched.fleet)
                except (CredentialsRefused, Untrusted) as error:
                    log.error("%s: %s", watched.cluster, error)
                    watched.relist.add("nodes")  # whose list then informs all
                except FleetError as error:
                    log.warning("%s of %s: %s", name, watched.cluster, error)
        except Exception:
            log.exception("chores of %s", watched.cluster)
        finally:
            databases.close_all()


def _leases(cluster: Cluster, fleet: Fleet) -> None:
    """Hear the agents, and make sure that it is still this cluster, and still ours (law 12)."""
    inspection.check_identity(cluster, fleet)
    observed = inspection.ownership(fleet.installation())
    if any(getattr(cluster, name) != value for name, value in observed.items()):
        Cluster.objects.filter(pk=cluster.pk).update(**observed)
        for name, value in observed.items():
            setattr(cluster, name, value)
    inspection.hear(cluster, fleet)
