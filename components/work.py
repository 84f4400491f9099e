"""What the engine asks of this room: prepare a component for a plan, carry it out, and look whether it is ready.

Each does bounded work and no transaction is open around it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.models import Cluster
from common.errors import WrongState


@dataclass(frozen=True, slots=True)
class ObjectDifference:
    change: str
    """created, changed, deleted or unvalidated"""
    api_version: str
    kind: str
    namespace: str
    name: str
    diff: str = ""
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    severity: str
    """block, warn or info"""
    code: str
    title: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    component: str
    release: str
    namespace: str
    version: str
    archive: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    helm_version: str = ""
    manifest_digest: str = ""
    action: str = "install"
    """install, upgrade, adopt or none"""
    from_revision: int = 0
    after: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    objects: tuple[ObjectDifference, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def digest(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Prepared:
        known: dict[str, Any] = dict(raw)
        known["objects"] = tuple(ObjectDifference(**o) for o in raw.get("objects", ()))
        known["notes"] = tuple(Note(**n) for n in raw.get("notes", ()))
        for name in ("after", "requires"):
            known[name] = tuple(raw.get(name, ()))
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Look:
    is_ready: bool
    missing: str = ""
    failed: str = ""


def prepare(cluster: Cluster, wanted: Any) -> Prepared:
    raise WrongState("This version cannot carry out components yet.")


def carry_out(
    cluster: Cluster,
    prepared: Prepared,
    *,
    direction: str,
    deadline: float,
    stop: Callable[[], bool],
    tell: Callable[[str], None],
) -> None:
    raise WrongState("This version cannot carry out components yet.")


def look(cluster: Cluster, prepared: Prepared, *, direction: str) -> Look:
    raise WrongState("This version cannot carry out components yet.")
