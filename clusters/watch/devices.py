"""Devices for claims (Dynamic Resource Allocation), followed where a cluster has any.

Not every cluster serves the kinds, and an account may be older than the permission: then the cluster's row says why,
and nothing else waits for it. Where no driver publishes a GPU, a short list a minute is all that it costs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from clusters.fleet import Forbidden, NotFound
from clusters.inventory import store
from clusters.models import Cluster
from clusters.watch.streams import DEVICE_KINDS, FAILURES_TO_BE_LOST, Listed, Message, Stream, Watched, WatchTimings
from common.clock import now

RELIST_SECONDS = 600.0
"""A list makes up for all that the rows lack; other kinds are compared instead (clusters.watch.anti_entropy)."""


class DeviceStream(Stream):
    """One of the two kinds: failures are the kind's own, not the cluster's."""

    _listed_at = 0.0

    def step(self) -> float:
        if time.monotonic() - self._listed_at > RELIST_SECONDS:
            self.version = ""
        wait = super().step()
        if not self.failures:
            self.watched.unread.pop(self.kind, None)
        return wait

    def _list(self) -> None:
        at = now()
        page = self.watched.fleet.list(self.kind)
        self.watched.relist.discard(self.kind)
        self.post(self.watched, Listed(self.kind, page, at))
        self.version, self._listed_at = page.resource_version, time.monotonic()

    def _fail(self, reason: str, *, is_refused: bool = False) -> float:
        if self.failures >= FAILURES_TO_BE_LOST or not self.version:
            self.watched.unread[self.kind] = reason
        return self.pace.wait(self.failures)


class DeviceWatch:
    """The two streams of one cluster. `turn` is called by one thread at a time."""

    def __init__(self, watched: Watched, post: Callable[[Watched, Message], None], pace: WatchTimings) -> None:
        self.watched, self.post, self.pace = watched, post, pace
        self.threads: list[threading.Thread] = []

    def turn(self) -> None:
        """Begin to follow once there is something; store why that is not possible. Raises FleetError."""
        if not self.threads and self._has_devices():
            for kind in DEVICE_KINDS:
                stream = DeviceStream(self.watched, kind, self.post, self.pace)
                name = f"watch-{self.watched.cluster.name}-{kind}"
                self.threads.append(threading.Thread(target=stream.run, name=name, daemon=True))
            for thread in self.threads:
                thread.start()
        why = next(iter(sorted(self.watched.unread.values())), "")[:300]
        cluster = self.watched.cluster
        if cluster.devices_unread != why:
            Cluster.objects.filter(pk=cluster.pk).update(devices_unread=why)
            cluster.devices_unread = why

    def _has_devices(self) -> bool:
        """Return whether a driver publishes GPUs. What is stored of an earlier one ends here."""
        cluster, at = self.watched.cluster, now()
        self.watched.unread.clear()
        try:
            page = self.watched.fleet.list("resourceslices")
        except NotFound:
            return False
        except Forbidden as error:
            self.watched.unread["resourceslices"] = str(error)
            return False
        store.OBSERVE_DEVICES["resourceslices"](
            cluster, page.items, complete=True, at=at, version=page.resource_version
        )
        if store.has_devices(cluster):
            return True
        store.OBSERVE_DEVICES["resourceclaims"](cluster, [], complete=True, at=at)
        return False
