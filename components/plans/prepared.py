"""A plan's data on a component, and the answer of a look at it: plain data, as JSON in rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.plans.authority import Authority
from components.plans.hits import Blast

BLOCK, WARN, INFO = "block", "warn", "info"
NOT_LOOKED_UP = "not-looked-up"


@dataclass(frozen=True, slots=True)
class ObjectDifference:
    change: str
    """created, changed, deleted, or unvalidated: it would be created, and its kind or namespace is not there yet."""
    api_version: str
    kind: str
    namespace: str
    name: str
    diff: str = ""
    """Unified, readable; nothing secret or generated is in it."""
    weight: int = 0
    """The lower, the sooner a person should read it."""


@dataclass(frozen=True, slots=True)
class PlanNote:
    severity: str
    """block, warn or info"""
    code: str
    title: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Destroyed:
    """A kind whose definition is deleted, and with it all its objects."""

    definition: str
    """queues.scheduling.volcano.sh"""
    kind: str
    count: int
    """Of objects, when the plan was made; -1: they cannot be counted."""


@dataclass(frozen=True, slots=True)
class ReplacedObject:
    """An object of the cluster's own whose work the component does.

    It is deleted once the component is ready, and a revert restores it.
    """

    api_version: str
    kind: str
    plural: str
    namespace: str
    name: str
    uid: str
    original: Mapping[str, Any]
    """As the plan saw it, without what the API server keeps for itself."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Prepared:
    component: str
    release: str
    namespace: str
    version: str
    archive: str = ""
    """SHA-256."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """All layers as one; secrets are references."""
    helm_version: str = ""
    manifest_digest: str = ""
    action: str = "install"
    """install, upgrade, adopt (an upgrade of a release that another party installed) or none"""
    from_revision: int = 0
    """The release's newest revision when the plan was made; 0: there was none."""
    after: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    objects: tuple[ObjectDifference, ...] = ()
    notes: tuple[PlanNote, ...] = ()
    masked: tuple[str, ...] = ()
    """Generated places of the manifest (components.helm.rendering)."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Of `values`: what an adopted release was given and no layer mentions."""
    destroys: tuple[Destroyed, ...] = ()
    back_to: int = 0
    """The revision that a revert goes back to: the one in force when the plan was made; 0: removal."""
    blast: Blast | None = None
    """What it does to running work; None: made before that was reckoned."""
    from_version: str = ""
    """Of the chart in force, where another takes its place; empty also in plans made before it was kept."""
    authority: Authority | None = None
    """The account it is carried out as, and its rights; None: made before they were asked, or nothing is done."""
    entry: str = ""
    """SHA-256 of the site's own catalog entry that it was made with; empty: the catalog that comes with Setpoint."""
    is_untested: bool = False
    """No one had classified that entry: its effects count as the strictest."""
    caveats: tuple[str, ...] = ()
    """What the catalog warns of for this step between versions, or for this removal."""

    replaced: tuple[ReplacedObject, ...] = ()
    """In the order in which they are deleted."""

    @property
    def is_blind(self) -> bool:
        """Return whether objects that its chart looks up counted as absent; the plan said so."""
        return any(note.code == NOT_LOOKED_UP for note in self.notes)

    @property
    def digest(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON without what was not reckoned, so that digests of earlier plans stay valid."""
        out = dataclasses.asdict(self)
        for name in ("blast", "authority", "from_version", "replaced", "entry", "is_untested", "caveats"):
            if not out[name]:
                del out[name]
        return out

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Prepared:
        known: dict[str, Any] = dict(raw)
        known["blast"] = Blast.from_json(raw["blast"]) if raw.get("blast") else None
        known["authority"] = Authority.from_json(raw["authority"]) if raw.get("authority") else None
        known["objects"] = tuple(ObjectDifference(**difference) for difference in raw.get("objects", ()))
        known["notes"] = tuple(PlanNote(**note) for note in raw.get("notes", ()))
        known["destroys"] = tuple(Destroyed(**kind) for kind in raw.get("destroys", ()))
        known["replaced"] = tuple(ReplacedObject(**each) for each in raw.get("replaced", ()))
        for name in ("after", "requires", "masked", "caveats"):
            known[name] = tuple(raw.get(name, ()))
        return cls(**known)


@dataclass(frozen=True, slots=True)
class ReadinessResult:
    is_ready: bool
    missing: str = ""
    """What is missing on which object or node, one sentence."""
    failed: str = ""
    """What will not become right by waiting."""
    is_steady: bool = False
    """Nothing is missing; it is only to be seen once more, because it is known to say so too early."""
