"""The thread that turns what streams say into rows: gathers for a moment, then writes in bulk, cluster by cluster."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import DatabaseError, close_old_connections
from django.db import connections as databases

from clusters.fleet import ObjectKind
from clusters.inventory import pod_rows, reachability, rows, store
from clusters.models import Cluster
from clusters.watch.streams import DEVICE_KINDS, KINDS, Failed, Happened, Listed, Message, Watched, WatchTimings

log = logging.getLogger(__name__)

Posted = tuple[Watched, Message]
DEEPEST = 5000
"""Messages waiting before streams are held up: the API server then buffers, and drops watchers that stay too slow."""

_OBSERVE = {**store.OBSERVE, **store.OBSERVE_DEVICES}


class Writer:
    def __init__(self, pace: WatchTimings) -> None:
        self.pace = pace
        self._queue: queue.Queue[Posted] = queue.Queue(DEEPEST)

    def post(self, watched: Watched, message: Message) -> None:
        """Called by streams. Waits while the database is behind; drops the message once the cluster is let go."""
        while not watched.stop.is_set():
            try:
                self._queue.put((watched, message), timeout=0.5)
                break
            except queue.Full:
                continue

    def run(self, stop: threading.Event) -> None:
        """Write until `stop`. No error of the database or a cluster ends it: rows would be stale forever."""
        try:
            while not stop.is_set() or not self._queue.empty():
                if self.flush(wait=0.2):
                    close_old_connections()
        finally:
            databases.close_all()

    def flush(self, wait: float = 0.0) -> int:
        """Write what has been posted, and what comes within the moment of gathering. Returns how many messages."""
        posted = self._gather(wait)
        by_cluster: dict[int, list[Posted]] = {}
        for item in posted:
            by_cluster.setdefault(id(item[0]), []).append(item)
        for items in by_cluster.values():
            self._write(items[0][0], [message for _, message in items])
        return len(posted)

    def _gather(self, wait: float) -> list[Posted]:
        try:
            posted = [self._queue.get(timeout=wait) if wait else self._queue.get_nowait()]
        except queue.Empty:
            return []
        until = time.monotonic() + (self.pace.gather if wait else 0.0)
        while len(posted) < self.pace.gather_events:
            left = until - time.monotonic()
            try:
                posted.append(self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait())
            except queue.Empty:
                break
        return posted

    def _write(self, watched: Watched, messages: list[Message]) -> None:
        if watched.stop.is_set():
            return
        try:
            pending: list[Happened] = []
            for message in messages:
                if isinstance(message, Listed):
                    self._write_events(watched, pending)
                    pending = []
                    self._write_list(watched, message)
                elif isinstance(message, Happened):
                    pending.append(message)
            self._write_events(watched, pending)
            self._judge(watched, messages)
        except Exception:
            # The events are lost to us, not to the API server: only a list makes up for them.
            watched.relist.update(message.kind for message in messages)
            if not _is_disconnected(watched.cluster):
                log.exception("what %s said could not be written; it is listed again", watched.cluster)

    def _write_list(self, watched: Watched, listed: Listed) -> None:
        page = listed.page
        _OBSERVE[listed.kind](watched.cluster, page.items, complete=True, at=listed.at, version=page.resource_version)
        if listed.kind == "nodes":
            watched.nodes_known.set()
        elif listed.kind == "pods":
            rowless = _rowless(page.items)
            there = {rows.identity(raw)[0] for raw in page.items} - rowless  # after a restore, of those deleted, too
            watched.rowless = {*rowless, *page.left_out, *(uid for _, uid in watched.departed)} - there

    def _write_events(self, watched: Watched, events: Iterable[Happened]) -> None:
        """The last word on each object, nodes before what is attached to them."""
        last: dict[ObjectKind, dict[str, Happened]] = {kind: {} for kind in (*KINDS, *DEVICE_KINDS)}
        for happened in events:
            if happened.event.type != "BOOKMARK" and not _is_of_no_row(watched, happened):
                last[happened.kind][_key(happened)] = happened
        for kind, by_key in last.items():
            if by_key:
                seen = [h.event.object for h in by_key.values() if h.event.type != "DELETED"]
                dead = [h.event.object for h in by_key.values() if h.event.type == "DELETED"]
                at = max(h.at for h in by_key.values())
                _OBSERVE[kind](watched.cluster, seen, complete=False, at=at, deleted=dead)
                if kind == "pods":
                    watched.rowless |= _rowless(seen)
                    watched.depart(rows.identity(raw)[0] for raw in dead)

    def _judge(self, watched: Watched, messages: Iterable[Message]) -> None:
        """Record what these messages prove about the cluster: true as of when, and whether it answers."""
        for message in messages:
            if message.kind in DEVICE_KINDS:
                continue
            if isinstance(message, Failed):
                watched.failed[message.kind] = message
            elif message.kind not in watched.relist:
                watched.failed.pop(message.kind, None)
                # Events and the end of a watch prove only what a list has founded.
                if isinstance(message, Listed) or message.kind in watched.proved:
                    watched.proved[message.kind] = message.at
        if watched.failed:
            worst = min(watched.failed.values(), key=lambda failed: (not failed.is_refused, failed.since))
            reachability.lost(watched.cluster, worst.reason, since=worst.since, is_refused=worst.is_refused)
            watched.is_known_reached = False
        elif at := watched.true_at:
            if not watched.is_known_reached:
                reachability.reached(watched.cluster, at=at)
                watched.is_known_reached = True
            reachability.seen_at(watched.cluster, at)


def _rowless(pods: Iterable[Mapping[str, Any]]) -> set[str]:
    """UIDs of those that have no row: what a pod requests does not change, nor does a finished one run again."""
    return {rows.identity(raw)[0] for raw in pods if not pod_rows.needs_row(raw)}


def _is_of_no_row(watched: Watched, happened: Happened) -> bool:
    """Return whether this changes no row, known without a query: a pod had none, and needs none now."""
    if happened.kind != "pods":
        return False
    uid = rows.identity(happened.event.object)[0]
    if not happened.event.is_brief:
        watched.rowless.discard(uid)  # it may have a row from now on
        return False
    if uid not in watched.rowless:
        return False
    if happened.event.type == "DELETED":
        watched.depart([uid])
    return True


def _is_disconnected(cluster: Cluster) -> bool:
    """Return whether the row was deleted meanwhile; False if the database cannot be asked."""
    try:
        return not Cluster.objects.filter(pk=cluster.pk).exists()
    except DatabaseError:
        return False


def _key(happened: Happened) -> str:
    """NodeTunings are one row a name; nodes and pods of one name may follow each other, and each one's end is told."""
    raw: Mapping[str, Any] = happened.event.object
    uid, name = rows.identity(raw)
    return name if happened.kind == "nodetunings" else uid
