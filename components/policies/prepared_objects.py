"""Policy objects as a plan stores them: what each becomes, what it was, and which fields are taken from others."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.fleet import ObjectRef
from components.plans.hits import Blast
from components.plans.prepared import PlanNote
from components.policies.takeover import Take


@dataclass(frozen=True, slots=True)
class PreparedObject:
    manifest: Mapping[str, Any]
    change: str
    """created, changed, same, or unvalidated: its kind or namespace comes with the same plan."""
    uid: str = ""
    """Of the object that is there; empty where there is none."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """What Setpoint owned of it before: what a revert goes back to."""
    diff: str = ""
    """Unified, of what Setpoint owns, or takes."""
    takes: tuple[Take, ...] = ()
    """Fields that others hold, and that become Setpoint's again."""
    with_theirs: Mapping[str, Any] = field(default_factory=dict)
    """`before` and what is taken, as it was; empty where nothing is."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> PreparedObject:
        return cls(**{**raw, "takes": tuple(Take.from_json(take) for take in raw.get("takes", ()))})

    def to_json(self) -> dict[str, Any]:
        """Return JSON without empty takes, so that digests of plans made before takeovers existed stay valid."""
        out = dataclasses.asdict(self)
        return out if self.takes else {key: value for key, value in out.items() if key not in ("takes", "with_theirs")}

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef.of(self.manifest)

    @property
    def title(self) -> str:
        return f"{self.ref.kind} {self.ref}"


@dataclass(frozen=True, slots=True)
class PreparedPolicies:
    objects: tuple[PreparedObject, ...] = ()
    """In the order in which they are applied."""
    notes: tuple[PlanNote, ...] = ()
    blast: Blast | None = None
    """What they do to running work; None: made before that was reckoned."""

    @property
    def changes(self) -> int:
        return sum(policy.change != "same" for policy in self.objects)

    @property
    def fields_taken(self) -> int:
        return sum(len({take.path for take in policy.takes}) for policy in self.objects)

    @property
    def digest(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def to_json(self) -> dict[str, Any]:
        out = {**dataclasses.asdict(self), "objects": tuple(policy.to_json() for policy in self.objects)}
        if self.blast is None:
            del out["blast"]
        return out

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> PreparedPolicies:
        objects = tuple(PreparedObject.from_json(policy) for policy in raw.get("objects", ()))
        blast = Blast.from_json(raw["blast"]) if raw.get("blast") else None
        return cls(objects, tuple(PlanNote(**note) for note in raw.get("notes", ())), blast)
