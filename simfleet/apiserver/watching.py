"""Following the changes of one resource type, as a watch sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from simfleet.apiserver import selectors
from simfleet.apiserver.store import Change

if TYPE_CHECKING:
    from simfleet.core import SimCluster

BOOKMARK_SECONDS = 30.0


def follow(
    cluster: SimCluster,
    plural: str,
    rv: int,
    namespace: str | None,
    wanted: selectors.Filter,
    *,
    timeout: float,
    bookmarks: bool,
) -> Iterator[Change | int]:
    until = time.monotonic() + timeout
    bookmark_at = time.monotonic() + BOOKMARK_SECONDS
    while True:
        with cluster.lock:
            reached = cluster.store.rv
            fresh = [c for c in cluster.store.since(plural, rv) if namespace in (None, c.now.key[0])]
        for change in fresh:
            if seen := _as_selected(change, wanted):
                yield seen
                if cluster.faults.drops_watch():
                    return
        rv, now = reached, time.monotonic()
        is_last = now >= until or not cluster.live
        if cluster.faults.outage:
            return
        if bookmarks and cluster.faults.bookmarks and (is_last or now >= bookmark_at):
            yield rv
            bookmark_at = now + BOOKMARK_SECONDS
        if is_last:
            return
        with cluster.lock:
            if cluster.store.rv == rv:
                cluster.news.wait(max(0.0, min(until, bookmark_at) - now))


def _as_selected(change: Change, wanted: selectors.Filter) -> Change | None:
    """The change as a watch with a selector sees it, None if it does not."""
    is_in = wanted(change.now.raw)
    was_in = change.before is not None and wanted(change.before.raw)
    if change.type == "DELETED":
        return change if was_in else None
    if is_in:
        return change if was_in else replace(change, type="ADDED")
    return replace(change, type="DELETED") if was_in else None
