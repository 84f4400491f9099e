"""Objects of any kind followed by their metadata alone, for rooms above: one watch a kind and label, cluster-wide.

Nothing but metadata travels, so no Secret is read, and a kind of a thousand objects costs little. What is heard says
when to look, never what is there: rooms above (common.hooks.follow) compare for themselves. A list means that what
happened before was missed, and they are told that, too.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from django.db import connections as databases

from clusters import objects
from clusters.connection import registry
from clusters.fleet import FleetError, Forbidden, Gone, Untrusted
from clusters.kube import paging
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import Resource
from clusters.kube.fleet import watch_error
from clusters.models import Cluster
from clusters.watch.streams import WatchTimings
from common import hooks
from common.hooks import Followed, ObjectChange

log = logging.getLogger(__name__)

MOST = 48
"""Watches of one cluster: a thread and a connection each."""
SECONDS = 40.0
"""Length of one watch: the bound on what a connection that died without a word can hide."""
FORBIDDEN_SECONDS = 60.0
"""Before what the credential may not watch is asked for again."""
_ACCEPT = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"

Key = tuple[str, str]


class Following:
    """All that is followed in one cluster by this process, with the credential that it has now: the watch makes
    another one for another credential. `turn` is called by one thread at a time, `close` by any, and once for all."""

    def __init__(self, cluster: Cluster, pace: WatchTimings) -> None:
        self.cluster, self.pace = cluster, pace
        self._resources = ExitStack()
        self._server: ApiServer | None = None
        self._followers: dict[Followed, Follower] = {}
        self._told: dict[Followed, str] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def turn(self) -> None:
        """Arrange the watches as rooms above want them now, and tell what was heard since. Raises FleetError."""
        wanted = sorted({*hooks.follow(self.cluster.pk)})
        with self._lock:
            if self._is_closed:
                return
            self._arrange(wanted[:MOST])
            followers = dict(self._followers)
        why = dict.fromkeys(wanted[MOST:], f"More than {MOST} kinds are not watched at once.")
        why |= {followed: follower.why for followed, follower in followers.items() if follower.why}
        self._tell(followers, why)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for follower in self._followers.values():
                follower.stop.set()
            self._followers.clear()
            self._resources.close()  # ends the watches that threads wait in

    def _arrange(self, wanted: Sequence[Followed]) -> None:
        for gone in [followed for followed in self._followers if followed not in wanted]:
            self._followers.pop(gone).stop.set()
        for followed in wanted:
            if followed not in self._followers:
                self._followers[followed] = self._start(followed)

    def _start(self, followed: Followed) -> Follower:
        if self._server is None:
            context = registry.api_server(self.cluster, connections=MOST)
            self._server = self._resources.enter_context(context)
        follower = Follower(self._server, followed, self.pace)
        name = f"follow-{self.cluster.name}-{followed.plural}"
        threading.Thread(target=follower.run, name=name, daemon=True).start()
        return follower

    def _tell(self, followers: Mapping[Followed, Follower], why: dict[Followed, str]) -> None:
        pk, heard, relisted = self.cluster.pk, [], []
        for followed, follower in followers.items():
            is_relisted, changes = follower.drain()
            heard += changes
            relisted += [followed] * is_relisted
        if relisted:
            hooks.followed_relisted(pk, relisted)
        if heard:
            hooks.followed_changed(pk, heard)
        if (self._told is None and why) or (self._told is not None and why != self._told):
            hooks.not_followed(pk, why)
        self._told = why


class Follower:
    """One kind: list, watch from there, again; in a thread of its own until `stop`."""

    def __init__(self, server: ApiServer, followed: Followed, pace: WatchTimings) -> None:
        self.server, self.followed, self.pace = server, followed, pace
        self.stop = threading.Event()
        self.why = ""
        """Why it cannot be followed now, as a sentence."""
        self._path = Resource(followed.api_version, "", followed.plural, is_namespaced=True).path()
        self._version = ""
        self._failures = 0
        self._known: dict[Key, Mapping[str, Any]] = {}
        self._heard: deque[ObjectChange] = deque()
        self._is_relisted = False

    def drain(self) -> tuple[bool, list[ObjectChange]]:
        """Return whether it was listed since the last call, and what happened; each object once."""
        was, self._is_relisted = self._is_relisted, False
        out: dict[Any, ObjectChange] = {}
        while self._heard:
            change = self._heard.popleft()
            key = change.namespace, change.name, tuple(sorted(change.annotations.items()))
            if key not in out or (out[key].is_status and not change.is_status):
                out[key] = change
        return was, list(out.values())

    def run(self) -> None:
        """Follow until `stop` is set; no answer or error of a server ends it."""
        while not self.stop.is_set():
            wait = self.step()
            databases.close_all()
            self.stop.wait(wait)

    def step(self) -> float:
        """One list, or one watch to its end. Returns how many seconds to wait before the next."""
        began = time.monotonic()
        try:
            if not self._version:
                self._list()
                self._failures, self.why = 0, ""
                return 0.0
            self._watch()
            self._failures, self.why = 0, ""
            return max(0.0, self.pace.shortest_watch - (time.monotonic() - began))
        except Gone:
            self._version = ""
            self._failures += 1
            return 0.0 if self._failures == 1 else self.pace.wait(self._failures)
        except Forbidden as error:
            self._version, self.why = "", f"{error}"[:300]
            return FORBIDDEN_SECONDS
        except FleetError as error:
            self._failures += 1
            if self._failures > 1:
                self.why = f"{error}"[:300]
            return self.pace.wait(self._failures)
        except Exception as error:
            log.exception("following %s", self.followed)
            self._version, self.why = "", f"internal error: {type(error).__name__}"
            self._failures += 1
            return self.pace.wait(self._failures)

    def _list(self) -> None:
        page = paging.listed(
            self.server,
            Call("list", self.followed.plural),
            self._path,
            limit=500,
            query={"labelSelector": self.followed.label},
            accept=_ACCEPT.format("List"),
            keep=lambda raw: (_key(raw), _kept(raw)),
        )
        items: list[Any] = page.items
        self._known, self._is_relisted = dict(items), True
        self._version = page.resource_version

    def _watch(self) -> None:
        call, seconds = Call("watch", self.followed.plural), SECONDS * random.uniform(0.75, 1)  # noqa: S311
        query = {
            "watch": "1",
            "labelSelector": self.followed.label,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(seconds)),
        }
        for raw in self.server.stream(call, self._path, query, timeout=seconds, accept=_ACCEPT.format("")):
            if self.stop.is_set():
                return
            type_, received = raw.get("type"), raw.get("object")
            if not isinstance(received, dict):
                raise Untrusted(f"{call}: an event without an object")
            if type_ == "ERROR":
                raise watch_error(call, received)
            if type_ != "BOOKMARK":
                self._take(str(type_), received)
            self._version = str(objects.meta(received).get("resourceVersion") or self._version)

    def _take(self, type_: str, raw: Mapping[str, Any]) -> None:
        key, after = _key(raw), _kept(raw)
        before = self._known.get(key)
        if type_ == "DELETED":
            self._known.pop(key, None)
        else:
            self._known[key] = after
        is_status = type_ == "MODIFIED" and before is not None and before == after
        seen = [after] if before is None else [before]
        if before is not None and any(before[name] != after[name] for name in ("labels", "annotations")):
            seen.append(after)  # it may have gone from one owner to another
        for state in seen:
            self._heard.append(ObjectChange(self.followed, *key, state["labels"], state["annotations"], is_status))


def _key(raw: Mapping[str, Any]) -> Key:
    meta = objects.meta(raw)
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _kept(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that tell whether it was changed. Kinds without a generation are changed by every write."""
    meta = objects.meta(raw)
    mark = meta.get("generation") or meta.get("resourceVersion")
    kept = {"mark": mark, "uid": meta.get("uid"), "ends": meta.get("deletionTimestamp")}
    return kept | {"labels": meta.get("labels") or {}, "annotations": meta.get("annotations") or {}}
