"""One kind of object of one cluster, followed: list, watch from there, again. What it says goes to the writer's queue.

Rows are proved true by data that arrived on the stream itself: an event, a bookmark, or the end at the agreed time. The
server sends a bookmark two seconds before that time, so with watches of 20 s a silent but living cluster proves itself
within 20 s, while a connection that died without a word proves nothing and is noticed.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.db import connections as databases

from clusters.fleet import CredentialsRefused, Event, Fleet, FleetError, Gone, ObjectKind, Page, Throttled
from clusters.inventory import inspection, store
from clusters.models import Cluster
from common.clock import now

log = logging.getLogger(__name__)

KINDS: Final[tuple[ObjectKind, ...]] = ("nodes", "nodetunings", "pods")
DEVICE_KINDS: Final[tuple[ObjectKind, ...]] = ("resourceslices", "resourceclaims")
"""Followed where they are served and a driver for GPUs publishes any; they prove nothing about a cluster."""
DEPARTED_SECONDS = 900.0
"""Beyond what etcd keeps a list for, and the look again at what differed."""
FAILURES_TO_BE_LOST = 2
"""One dropped connection is every day's; two failures in a row mean that the cluster does not answer."""


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """Seconds, all of them. Tests hurry."""

    watch: float = 20.0
    """Length of one watch: the bound on what a dead connection can hide. Less than SETPOINT_FRESH_SECONDS."""
    gather: float = 0.2
    gather_events: int = 500
    tick: float = 1.0
    shortest_watch: float = 1.0
    """A server that ends watches at once is not asked again sooner."""
    backoff: float = 0.5
    longest_backoff: float = 30.0
    leases: float = 60.0
    enrol: float = 5.0
    inspect: float = 300.0
    compare: float = 300.0
    """How often names and versions of a kind are held against its rows."""
    compare_turn: float = 5.0
    settle: float = 10.0
    """What differs is looked at again after this: the watch may only have been a moment behind."""
    devices: float = 60.0
    """How often a cluster is asked whether it has devices for claims, until it has."""
    follow: float = 5.0
    """How often what is followed for rooms above is arranged again, and what was heard of it is told."""

    def wait(self, failures: int) -> float:
        """Return the seconds before try number `failures` + 1: doubling, with jitter so that clusters do not return in
        step."""
        doubled = self.backoff * float(1 << min(failures - 1, 10))
        return min(self.longest_backoff, doubled) * random.uniform(0.5, 1)  # noqa: S311


@dataclass(frozen=True, slots=True)
class Listed:
    kind: ObjectKind
    page: Page
    at: datetime


@dataclass(frozen=True, slots=True)
class Happened:
    kind: ObjectKind
    event: Event
    at: datetime


@dataclass(frozen=True, slots=True)
class Ended:
    """A watch ran its full time: everything up to then was sent."""

    kind: ObjectKind
    at: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    kind: ObjectKind
    reason: str
    since: datetime
    is_refused: bool = False
    """The API server, or its certificate, says so of the credential: a person replaces it."""


Message = Listed | Happened | Ended | Failed


@dataclass
class Watched:
    """One cluster that this process watches, shared by its streams and the writer."""

    cluster: Cluster
    fleet: Fleet
    stop: threading.Event = field(default_factory=threading.Event)
    nodes_known: threading.Event = field(default_factory=threading.Event)
    """The first list of nodes is written: agents' objects have rows to be attached to."""
    relist: set[ObjectKind] = field(default_factory=set)
    """Kinds whose events could not be written: only a list makes up for them."""
    proved: dict[ObjectKind, datetime] = field(default_factory=dict)
    failed: dict[ObjectKind, Failed] = field(default_factory=dict)
    rowless: set[str] = field(default_factory=set)
    """UIDs of pods that have no row because they need none, those deleted lately among them."""
    departed: deque[tuple[float, str]] = field(default_factory=deque)
    """Pods that were deleted, and when: a list of names that is still being read may name them."""
    unread: dict[ObjectKind, str] = field(default_factory=dict)
    """Of DEVICE_KINDS, why they cannot be followed now."""
    is_known_reached: bool = False
    """The row says so already; a quiet cluster is not told again and again."""

    def depart(self, uids: Iterable[str]) -> None:
        """Remember pods as deleted, for as long as a list may be read and looked at again, and forget older ones."""
        at = time.monotonic()
        for uid in uids:
            self.rowless.add(uid)
            self.departed.append((at, uid))
        while self.departed and self.departed[0][0] < at - DEPARTED_SECONDS:
            self.rowless.discard(self.departed.popleft()[1])

    @property
    def true_at(self) -> datetime | None:
        """Time as of which all rows of the cluster were last known to be true; None until every kind was listed."""
        return min(self.proved.values()) if len(self.proved) == len(KINDS) else None


class Stream:
    def __init__(
        self, watched: Watched, kind: ObjectKind, post: Callable[[Watched, Message], None], pace: WatchTimings
    ) -> None:
        self.watched, self.kind, self.post, self.pace = watched, kind, post, pace
        self.version = ""
        """Everything up to this resource version was posted; empty: list first."""
        self.failures = 0
        self._failing_since: datetime | None = None
        self._unwritten = 0
        """Lists in a row that the writer asked for: what came could not be written, so neither may be the next."""

    def run(self) -> None:
        """Follow until the cluster is released; no answer or error of a server ends it."""
        if self.kind != "nodes":
            while not self.watched.nodes_known.wait(0.5):
                if self.watched.stop.is_set():
                    return
        while not self.watched.stop.is_set():
            wait = self.step()
            databases.close_all()  # only lists use one, and they are rare: three streams a cluster would add up
            self.watched.stop.wait(wait)

    def step(self) -> float:
        """One list, or one watch to its end. Returns how many seconds to wait before the next."""
        began = time.monotonic()
        try:
            if self.kind in self.watched.relist or not self.version:
                self._unwritten = self._unwritten + 1 if self.kind in self.watched.relist else 0
                self._list()
                wait = self.pace.wait(self._unwritten) if self._unwritten else 0.0
            else:
                self._unwritten = 0
                self._watch()
                wait = self.pace.shortest_watch - (time.monotonic() - began)
        except Gone:
            # The normal end of a watch that fell behind. A server that says so to each new list is failing.
            self.version = ""
            self.failures += 1
            return 0.0 if self.failures == 1 else self._fail("its resource versions expire at once")
        except Throttled as error:
            self.failures += 1
            return max(min(error.retry_after, 60.0), self.pace.wait(self.failures))
        except FleetError as error:
            self.failures += 1
            return self._fail(str(error), is_refused=isinstance(error, CredentialsRefused))
        except Exception as error:
            log.exception("stream of %s of %s", self.kind, self.watched.cluster)
            self.version = ""
            self.failures += 1
            return self._fail(f"internal error: {type(error).__name__}")
        self.failures, self._failing_since = 0, None
        return max(wait, 0.0)

    def _list(self) -> None:
        at, cluster = now(), self.watched.cluster
        if self.kind == "nodes":
            inspection.check_identity(cluster, self.watched.fleet)
        page = inspection.truth(cluster, self.watched.fleet, self.kind)
        self.watched.relist.discard(self.kind)
        self.post(self.watched, Listed(self.kind, page, at))
        self.version = page.resource_version

    def _watch(self) -> None:
        began = time.monotonic()
        seconds = self.pace.watch * random.uniform(0.75, 1)  # noqa: S311  (so that streams do not reopen in step)
        keep = store.KEEP.get(self.kind)
        for event in self.watched.fleet.watch(self.kind, self.version, timeout=seconds, keep=keep):
            if self.watched.stop.is_set() or self.kind in self.watched.relist:
                return
            self.post(self.watched, Happened(self.kind, event, now()))
            self.version = event.resource_version or self.version
            self.failures = 0
        if time.monotonic() - began >= seconds - 1:
            self.post(self.watched, Ended(self.kind, now()))

    def _fail(self, reason: str, *, is_refused: bool = False) -> float:
        self._failing_since = self._failing_since or now()
        if self.failures >= FAILURES_TO_BE_LOST or not self.version:
            self.post(self.watched, Failed(self.kind, reason, self._failing_since, is_refused))
        return self.pace.wait(self.failures)
