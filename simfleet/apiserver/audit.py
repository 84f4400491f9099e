"""The simulated API server's audit log: what was asked, by whom, and what was answered. Laws are judged from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simfleet.apiserver.resources import Resource
from simfleet.clock import micro_stamp


@dataclass(frozen=True, slots=True)
class AuditEntry:
    verb: str
    """get, list, watch, create, update, patch, delete."""
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    time: datetime
    code: int
    request: Mapping[str, Any] | None
    """Body of a write, as sent; None for reads, and for what nodes and agents write, which is most of it."""
    type: Resource | None = None
    """What `resource` was the key of when it was asked for."""

    def to_json(self) -> dict[str, Any]:
        """Format the call as a line of a real API server's log at level Request, so that one checker reads both."""
        of = self.type
        reference = {
            "resource": of.plural if of else self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
            "apiGroup": of.group if of else "",
            "apiVersion": of.version if of else "v1",
        }
        entry: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Request",
            "stage": "ResponseComplete",
            "verb": self.verb,
            "user": {"username": self.user},
            "objectRef": {k: v for k, v in reference.items() if v},
            "responseStatus": {"code": self.code},
            "requestReceivedTimestamp": micro_stamp(self.time),
            "stageTimestamp": micro_stamp(self.time),
        }
        if self.request is not None:
            entry["requestObject"] = dict(self.request)
        return entry


class AuditLog:
    """Keeps every write and counts every call; reads are only counted, for a fleet reads far more than it writes."""

    WRITES = frozenset({"create", "update", "patch", "delete"})

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        """(verb, resource or resource/subresource) to number of calls, by all clients but the simulated nodes."""

    def record(self, entry: AuditEntry) -> None:
        if entry.verb in self.WRITES:
            self.entries.append(entry)

    def count(self, verb: str, resource: str, subresource: str = "") -> None:
        self.calls[verb, f"{resource}/{subresource}" if subresource else resource] += 1

    def __iter__(self) -> Iterator[AuditEntry]:
        return iter(self.entries)

    def by(self, user: str, *, resource: str = "", subresource: str | None = None) -> Iterable[AuditEntry]:
        """Writes of one user, in order."""
        return [
            e
            for e in self.entries
            if e.user == user and resource in ("", e.resource) and (subresource is None or subresource == e.subresource)
        ]
