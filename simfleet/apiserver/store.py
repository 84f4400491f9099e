"""Store in place of etcd and the API server's registry: versions, generations, preconditions, a log for watches.

Stored objects are never changed in place: a write puts a new dict beside shared unchanged parts, so lists and events
may hand out references, and an encoding is made once per version. Callers that hand objects out copy them.
"""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from simfleet.apiserver.resources import RESOURCES, Resource

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
Key = tuple[str, str]
Raw = dict[str, Any]
NO_UID = "00000000-0000-0000-0000-000000000000"
"""Of an object that was never stored."""


class ApiError(Exception):
    """An answer of the API server other than success, with what its Status object says."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        causes: tuple[dict[str, str], ...] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.causes, self.retry_after = causes, retry_after

    def status(self) -> Raw:
        details: Raw = {}
        if self.causes:
            details["causes"] = list(self.causes)
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": details,
            "code": self.code,
        }


class Stored:
    """One version of one object, without kind and apiVersion; its encoding is made on first use and kept."""

    __slots__ = ("_encoded", "raw", "rv")

    def __init__(self, raw: Raw, rv: int) -> None:
        self.raw, self.rv = raw, rv
        self._encoded: bytes | None = None

    @property
    def key(self) -> Key:
        metadata = self.raw["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    def encoded(self) -> bytes:
        encoded = self._encoded
        if encoded is None:
            encoded = self._encoded = json.dumps(self.raw, separators=(",", ":")).encode()
        return encoded

    def forget(self) -> None:
        """Superseded: its encoding is made again where needed. With thousands of nodes that saves much memory."""
        self._encoded = None

    def copy(self) -> Raw:
        raw: Raw = json.loads(self.encoded())
        return raw


@dataclass(frozen=True, slots=True)
class Change:
    rv: int
    type: ChangeType
    now: Stored
    before: Stored | None


class _Table:
    __slots__ = ("compacted", "keys", "log", "objects")

    def __init__(self) -> None:
        self.objects: dict[Key, Stored] = {}
        self.keys: list[Key] = []
        self.log: list[Change] = []
        self.compacted = 0


class Store:
    """All objects of one cluster. Not locked: the cluster's lock is held around every call."""

    def __init__(self, *, stamp: Callable[[], str], new_uid: Callable[[], str], keep: int = 20_000) -> None:
        """`keep`: changes remembered per resource; a watch from further back gets 410."""
        self._stamp, self._new_uid, self._keep = stamp, new_uid, keep
        self.resources = dict(RESOURCES)
        self._tables = {plural: _Table() for plural in RESOURCES}
        self.rv = 100
        self.pods_by_node: dict[str, dict[Key, Stored]] = {}
        self.listeners: list[Callable[[str, Change], None]] = []

    def register(self, key: str, resource: Resource) -> None:
        """Serve another type from now on, or another version of it."""
        self.resources[key] = resource
        self._tables.setdefault(key, _Table())

    def withdraw(self, key: str) -> None:
        """Serve a type no more. Its objects are gone already; its table stays, so that open watches end in peace."""
        self.resources.pop(key, None)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────
    def find(self, plural: str, name: str, namespace: str = "") -> Stored | None:
        """None, too, where the type itself is not served."""
        table = self._tables.get(plural)
        return table.objects.get((namespace, name)) if table else None

    def get(self, plural: str, name: str, namespace: str = "") -> Stored:
        """Raises ApiError 404."""
        stored = self.find(plural, name, namespace)
        if stored is None:
            raise ApiError(404, "NotFound", f'{self.resources[plural].qualified} "{name}" not found')
        return stored

    def all(self, plural: str, namespace: str | None = None) -> list[Stored]:
        """List stored objects in key order, as etcd does."""
        table = self._tables[plural]
        if namespace is None:
            return [table.objects[key] for key in table.keys]
        start = bisect_right(table.keys, (namespace, ""))
        end = bisect_right(table.keys, (namespace + "\0", ""))
        return [table.objects[key] for key in table.keys[start:end]]

    def count(self, plural: str) -> int:
        return len(self._tables[plural].objects)

    def on_node(self, node: str) -> list[Stored]:
        return [pod for _, pod in sorted(self.pods_by_node.get(node, {}).items())]

    def since(self, plural: str, rv: int) -> Iterator[Change]:
        """Changes after `rv`, oldest first. Raises ApiError 410 when some of them are forgotten."""
        table = self._tables[plural]
        if rv < table.compacted:
            raise ApiError(410, "Expired", f"too old resource version: {rv} ({table.compacted})")
        start = bisect_right(table.log, rv, key=lambda change: change.rv)
        return iter(table.log[start:])

    def compact(self, plural: str | None = None) -> None:
        """Forget the past: every watch that is not up to date gets 410."""
        for name in [plural] if plural else list(self._tables):
            self._tables[name].log.clear()
            self._tables[name].compacted = self.rv

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────
    def create(self, plural: str, raw: Mapping[str, Any], *, is_dry: bool = False, at: str = "") -> Stored:
        """Raises ApiError 409 AlreadyExists. `is_dry`: say what would be, and leave everything as it is.

        `at`: the time of creation; empty: now.
        """
        metadata = dict(raw.get("metadata") or {})
        key = (metadata.get("namespace", "") if self.resources[plural].namespaced else "", str(metadata["name"]))
        if key in self._tables[plural].objects:
            raise ApiError(409, "AlreadyExists", f'{self.resources[plural].qualified} "{key[1]}" already exists')
        metadata |= {"uid": NO_UID if is_dry else self._new_uid(), "creationTimestamp": at or self._stamp()}
        metadata.pop("resourceVersion", None)
        if self.resources[plural].generation:
            metadata["generation"] = 1
        body = {k: v for k, v in raw.items() if k not in ("kind", "apiVersion")}
        new = body | {"metadata": metadata}
        return Stored(new, self.rv) if is_dry else self._put(plural, key, new, "ADDED")

    def update(self, plural: str, new: Raw, *, status_only: bool = False, is_dry: bool = False) -> Stored:
        """Replace an object by a version made from it. A change of nothing writes nothing, as on the real one.

        `status_only` is a write through the status subresource: spec and metadata stay. Otherwise status stays,
        unless it is a field like others; the simulator's own controllers use `write`.
        Raises ApiError 404, and 409 for another UID or an old resourceVersion.
        """
        metadata = new["metadata"]
        old = self.get(plural, metadata["name"], metadata.get("namespace", ""))
        self._check(plural, old, metadata)
        if status_only:
            new = old.raw | ({"status": new["status"]} if "status" in new else {})
        elif self.resources[plural].has_status:
            new = {k: v for k, v in new.items() if k != "status"}
            if "status" in old.raw:
                new["status"] = old.raw["status"]
        return self.write(plural, new, is_dry=is_dry)

    def write(self, plural: str, new: Raw, *, is_dry: bool = False) -> Stored:
        """Put a new version of an object, whole, as the cluster's own controllers do through both doors at once."""
        metadata = new["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        old = self._tables[plural].objects[key]
        kept = {k: old.raw["metadata"].get(k) for k in ("uid", "creationTimestamp", "resourceVersion", "generation")}
        new = new | {"metadata": metadata | {k: v for k, v in kept.items() if v is not None}}
        if new == old.raw:
            return old
        if self.resources[plural].generation and _desired(new) != _desired(old.raw):
            new["metadata"]["generation"] = kept["generation"] + 1
        return Stored(new, old.rv) if is_dry else self._put(plural, key, new, "MODIFIED")

    def delete(self, plural: str, name: str, namespace: str = "", *, uid: str = "") -> Stored:
        """Take an object out at once. Raises ApiError 404, and 409 for another UID."""
        old = self.get(plural, name, namespace)
        self._check(plural, old, {"uid": uid})
        table = self._tables[plural]
        del table.objects[old.key]
        table.keys.remove(old.key)
        self.rv += 1
        gone = Stored(old.raw | {"metadata": old.raw["metadata"] | {"resourceVersion": str(self.rv)}}, self.rv)
        self._record(plural, Change(self.rv, "DELETED", gone, old))
        return gone

    def check(self, plural: str, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> Stored:
        """The object, if the preconditions hold. Raises ApiError 404, 409."""
        stored = self.get(plural, name, namespace)
        self._check(plural, stored, {"uid": uid, "resourceVersion": version})
        return stored

    def _check(self, plural: str, old: Stored, preconditions: Mapping[str, Any]) -> None:
        have, name = old.raw["metadata"], self.resources[plural].qualified
        if preconditions.get("uid") and preconditions["uid"] != have["uid"]:
            raise ApiError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {name} "{have["name"]}": Precondition failed: UID in precondition: '
                f"{preconditions['uid']}, UID in object meta: {have['uid']}",
            )
        if preconditions.get("resourceVersion") and preconditions["resourceVersion"] != have["resourceVersion"]:
            raise ApiError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {name} "{have["name"]}": the object has been modified; please apply '
                "your changes to the latest version and try again",
            )

    def _put(self, plural: str, key: Key, raw: Raw, type_: ChangeType) -> Stored:
        table = self._tables[plural]
        before = table.objects.get(key)
        self.rv += 1
        stored = Stored(raw | {"metadata": raw["metadata"] | {"resourceVersion": str(self.rv)}}, self.rv)
        table.objects[key] = stored
        if before is not None:
            before.forget()
        if before is None:
            insort(table.keys, key)
        self._record(plural, Change(self.rv, type_, stored, before))
        return stored

    def _record(self, plural: str, change: Change) -> None:
        table = self._tables[plural]
        table.log.append(change)
        if len(table.log) > 2 * self._keep:  # trimmed by halves, so that a write does not cost the log's length
            table.compacted = table.log[-self._keep - 1].rv
            del table.log[: -self._keep]
        if plural == "pods":
            self._index_pod(change)
        for listener in self.listeners:
            listener(plural, change)

    def _index_pod(self, change: Change) -> None:
        if change.before is not None:
            self.pods_by_node.get(_node_of(change.before), {}).pop(change.before.key, None)
        if change.type != "DELETED" and _node_of(change.now):
            self.pods_by_node.setdefault(_node_of(change.now), {})[change.now.key] = change.now


def _node_of(pod: Stored) -> str:
    return str((pod.raw.get("spec") or {}).get("nodeName", ""))


def _desired(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in raw.items() if k not in ("metadata", "status", "kind", "apiVersion")}


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces. Shares what it does not change."""
    if not isinstance(patch, Mapping):
        return patch
    out = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merge(out.get(name), value)
    return out
