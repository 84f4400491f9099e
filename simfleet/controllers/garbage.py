"""Garbage collection: dependants by owner reference, a namespace's content, and waiting for finalizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simfleet.apiserver.store import ApiError, Change, Key, Raw, Stored
from simfleet.clock import stamp

if TYPE_CHECKING:
    from simfleet.core import SimCluster

COLLECT_SECONDS = 0.3
POLICIES = ("", "Background", "Foreground", "Orphan")
FOREGROUND = "foregroundDeletion"
PROTECTED = frozenset({"default", "kube-system", "kube-public"})
ObjectPlace = tuple[str, Key]


class Garbage:
    """Garbage collector of all but nodes: `nodes.Nodes` takes their pods and NodeTunings away."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._dependants: dict[str, dict[ObjectPlace, None]] = {}
        cluster.store.listeners.append(self._changed)

    def dependants(self, uid: str, plural: str) -> list[Stored]:
        """List objects that name `uid` as an owner, in the order of creation."""
        present = (self._store.find(p, key[1], key[0]) for p, key in self._dependants.get(uid, ()) if p == plural)
        return [stored for stored in present if stored is not None]

    # ── noticing ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _changed(self, plural: str, change: Change) -> None:
        place = (plural, change.now.key)
        before = _owners(change.before.raw) if change.before else ()
        now = _owners(change.now.raw) if change.type != "DELETED" else ()
        for uid in before:
            if uid not in now and (mine := self._dependants.get(uid)) is not None:
                mine.pop(place, None)
                if not mine:
                    del self._dependants[uid]
        for uid in now:
            self._dependants.setdefault(uid, {})[place] = None
        metadata = change.now.raw["metadata"]
        if change.type == "DELETED" and plural != "nodes" and metadata["uid"] in self._dependants:
            self._later(lambda: self._collect(metadata["uid"]))
        is_free = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        if change.type == "MODIFIED" and is_free and plural not in ("pods", "nodes", "namespaces"):
            self._later(lambda: self._finalized(plural, change.now))

    def _later(self, action: Callable[[], None]) -> None:
        self._cluster.after(COLLECT_SECONDS, action)

    # ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────
    def delete(self, plural: str, stored: Stored, *, policy: str = "", grace: int | None = None) -> Stored:
        """Delete as the API server does for a client. Raises ApiError 403 for an undeletable object, 422 for an unknown
        policy."""
        if policy not in POLICIES:
            raise ApiError(422, "Invalid", f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: {policy!r}')
        namespace, name = stored.key
        if plural == "pods":
            return self._cluster.pods.terminate(stored, grace=grace)
        if plural == "nodes":
            self._cluster.nodes.delete(name)
            return stored
        if plural == "namespaces":
            return self._empty(stored)
        uid = stored.raw["metadata"]["uid"]
        if policy == "Orphan":
            for place in list(self._dependants.get(uid, ())):
                self._disown(place, uid)
        finalizers = list(stored.raw["metadata"].get("finalizers") or ())
        if policy == "Foreground" and uid in self._dependants:
            finalizers.append(FOREGROUND)
            self._later(lambda: self._foreground(plural, stored.key, uid))
        if not finalizers:
            return self._store.delete(plural, name, namespace)
        return self._mark(plural, stored, finalizers)

    def _mark(self, plural: str, stored: Stored, finalizers: list[str]) -> Stored:
        at = stamp(self._cluster.clock.now())
        metadata: Raw = {"deletionTimestamp": at} | stored.raw["metadata"] | {"finalizers": finalizers}
        return self._store.write(plural, stored.raw | {"metadata": metadata})

    def _finalized(self, plural: str, stored: Stored) -> None:
        current = self._store.find(plural, stored.key[1], stored.key[0])
        if current is not None and current.raw["metadata"]["uid"] == stored.raw["metadata"]["uid"]:
            self._store.delete(plural, stored.key[1], stored.key[0])

    def _foreground(self, plural: str, key: Key, uid: str) -> None:
        """Dependants first; the owner when none is left."""
        self._collect(uid)
        if uid in self._dependants:
            self._later(lambda: self._foreground(plural, key, uid))
            return
        owner = self._store.find(plural, key[1], key[0])
        if owner is not None and owner.raw["metadata"]["uid"] == uid:
            metadata = owner.raw["metadata"]
            left = [f for f in metadata.get("finalizers") or () if f != FOREGROUND]
            self._store.write(plural, owner.raw | {"metadata": metadata | {"finalizers": left}})

    def _collect(self, uid: str) -> None:
        """Dependants that no other owner keeps go, and their own dependants after them."""
        for plural, key in list(self._dependants.get(uid, ())):
            dependant = self._store.find(plural, key[1], key[0])
            if dependant is None:
                continue
            if len(_owners(dependant.raw)) > 1:
                self._disown((plural, key), uid)
            elif "deletionTimestamp" not in dependant.raw["metadata"]:
                self.delete(plural, dependant)

    def _disown(self, place: ObjectPlace, uid: str) -> None:
        plural, key = place
        dependant = self._store.get(plural, key[1], key[0])
        metadata = dependant.raw["metadata"]
        left = [o for o in metadata["ownerReferences"] if o.get("uid") != uid]
        self._store.write(plural, dependant.raw | {"metadata": metadata | {"ownerReferences": left}})

    # ── namespaces ────────────────────────────────────────────────────────────────────────────────────────────────
    def _empty(self, stored: Stored) -> Stored:
        name = stored.key[1]
        if name in PROTECTED:
            raise ApiError(403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted')
        if "deletionTimestamp" in stored.raw["metadata"]:
            return stored
        marked = self._store.write("namespaces", stored.raw | {"status": {"phase": "Terminating"}})
        metadata: dict[str, Any] = marked.raw["metadata"] | {"deletionTimestamp": stamp(self._cluster.clock.now())}
        marked = self._store.write("namespaces", marked.raw | {"metadata": metadata})
        self._later(lambda: self._sweep(name))
        return marked

    def _sweep(self, namespace: str) -> None:
        """Everything in it goes; the namespace itself when nothing is left."""
        left = 0
        for plural, resource in list(self._store.resources.items()):
            if resource.namespaced:
                for stored in self._store.all(plural, namespace):
                    left += 1
                    if "deletionTimestamp" not in stored.raw["metadata"]:
                        self.delete(plural, stored)
        if left:
            self._later(lambda: self._sweep(namespace))
        elif self._store.find("namespaces", namespace):
            self._store.delete("namespaces", namespace)


def _owners(raw: Raw) -> tuple[str, ...]:
    owners = raw["metadata"].get("ownerReferences")
    return tuple(o["uid"] for o in owners if o.get("uid")) if owners else ()
