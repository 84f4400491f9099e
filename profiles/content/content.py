"""Content of a revision, flattened: what it wants of nodes and of the cluster, each with the revision it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from contract.keys import ApplyClass
from profiles.catalog import known_labels
from profiles.content.cluster import WantedComponent, WantedObject

__all__ = [
    "PARTS",
    "BadContent",
    "Content",
    "ContentDifference",
    "Mark",
    "WantedComponent",
    "WantedObject",
    "WantedSetting",
    "WantedTaint",
    "build",
    "diff",
    "digest",
]

SERIALISATION = 1
_OF_TAINTS = {"NoExecute": "drain", "NoSchedule": "new-pods"}
"""The class of setting a taint, by its effect; any other touches no pod."""
"""Part of the digest's input: another way of writing the same meaning must not give the same digest by accident."""


class BadContent(ValueError):
    """A stored revision is not of this shape: it was written by something newer, or damaged."""


@dataclass(frozen=True, slots=True)
class WantedSetting:
    key: str
    operator: str
    value: str
    apply_class: str
    origin: str
    """`gpu-baseline r3`: the revision that last said so."""
    why: str = ""

    @property
    def meaning(self) -> tuple[str, str, str]:
        return (self.key, self.operator, self.value)

    def __str__(self) -> str:
        return f"{self.key} {self.operator} {self.value}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A label or an annotation of every node in the pool."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class WantedTaint:
    key: str
    value: str
    effect: str
    origin: str

    @property
    def name(self) -> str:
        """Identity of a taint on a node: the value is no part of it."""
        return f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Content:
    """Each part is sorted by key, so that equal meanings are equal values."""

    settings: tuple[WantedSetting, ...] = ()
    labels: tuple[Mark, ...] = ()
    taints: tuple[WantedTaint, ...] = ()
    annotations: tuple[Mark, ...] = ()
    components: tuple[WantedComponent, ...] = ()
    policies: tuple[WantedObject, ...] = ()
    """Sorted by kind, namespace and name."""

    @property
    def is_empty(self) -> bool:
        return not (self.has_node_part or self.has_cluster_part)

    @property
    def has_node_part(self) -> bool:
        """Return whether it wants anything of nodes."""
        return bool(self.settings or self.labels or self.taints or self.annotations)

    @property
    def has_cluster_part(self) -> bool:
        """Return whether it wants anything of the cluster itself."""
        return bool(self.components or self.policies)

    @property
    def worst_class(self) -> str:
        """The most disturbing class of settings, of labels that a program acts upon and of taints.

        A plan knows which pods tolerate a taint that evicts; here the worst is assumed.
        """
        classes = [str(s.apply_class) for s in self.settings]
        classes += [known.disruption for mark in self.labels if (known := known_labels.get(mark.key))]
        classes += [_OF_TAINTS.get(taint.effect, "live") for taint in self.taints]
        return max(classes, key=known_labels.ORDER.index, default=str(ApplyClass.LIVE))

    def setting(self, key: str) -> WantedSetting | None:
        return next((s for s in self.settings if s.key == key), None)

    def component(self, name: str) -> WantedComponent | None:
        return next((c for c in self.components if c.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Labels and annotations as Kubernetes writes them; their origins stand apart."""
        return {
            "settings": [
                {
                    "key": s.key,
                    "operator": str(s.operator),
                    "value": s.value,
                    "apply_class": str(s.apply_class),
                    "origin": s.origin,
                    "why": s.why,
                }
                for s in self.settings
            ],
            "labels": {mark.key: mark.value for mark in self.labels},
            "annotations": {mark.key: mark.value for mark in self.annotations},
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect, "origin": t.origin} for t in self.taints],
            "origins": {
                "labels": {mark.key: mark.origin for mark in self.labels},
                "annotations": {mark.key: mark.origin for mark in self.annotations},
            },
            "components": [component.to_json() for component in self.components],
            "policies": [policy.to_json() for policy in self.policies],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Content:
        """Read what `to_json` wrote. Raises BadContent."""
        try:
            return build(
                settings=[
                    WantedSetting(
                        s["key"], s["operator"], s["value"], s["apply_class"], s.get("origin", ""), s.get("why", "")
                    )
                    for s in raw.get("settings", ())
                ],
                labels=_marks(raw, "labels"),
                annotations=_marks(raw, "annotations"),
                taints=[
                    WantedTaint(t["key"], t.get("value", ""), t["effect"], t.get("origin", ""))
                    for t in raw.get("taints", ())
                ],
                components=[WantedComponent.from_json(c) for c in raw.get("components", ())],
                policies=[WantedObject.from_json(o) for o in raw.get("policies", ())],
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise BadContent(f"this revision's content cannot be read: {error!r}") from error


def _marks(raw: Mapping[str, Any], part: str) -> list[Mark]:
    origins = raw.get("origins", {}).get(part, {})
    return [Mark(key, value, origins.get(key, "")) for key, value in raw.get(part, {}).items()]


def build(
    *,
    settings: list[WantedSetting],
    labels: list[Mark],
    annotations: list[Mark],
    taints: list[WantedTaint],
    components: Iterable[WantedComponent] = (),
    policies: Iterable[WantedObject] = (),
) -> Content:
    """The one place that orders the parts."""
    return Content(
        settings=tuple(sorted(settings, key=lambda s: s.key)),
        labels=tuple(sorted(labels, key=lambda mark: mark.key)),
        taints=tuple(sorted(taints, key=lambda t: (t.key, t.effect))),
        annotations=tuple(sorted(annotations, key=lambda mark: mark.key)),
        components=tuple(sorted(components, key=lambda component: component.name)),
        policies=tuple(sorted(policies, key=lambda policy: (policy.kind, policy.namespace, policy.name))),
    )


def digest(content: Content) -> str:
    """`sha256:<hex>` over what nodes and cluster would get: keys, operators, values, marks, components, policy objects.

    Origins and reasons are left out: moving a setting into a base profile, or explaining it better, changes no node.
    Two revisions with one digest are the same tuning, under any names. What a revision wants of the cluster is
    part of the input only where there is any: digests from before there was are the same still.
    """
    meaning: dict[str, Any] = {
        "serialisation": SERIALISATION,
        "settings": [[str(part) for part in s.meaning] for s in content.settings],
        "labels": [[mark.key, mark.value] for mark in content.labels],
        "annotations": [[mark.key, mark.value] for mark in content.annotations],
        "taints": [[t.key, t.effect, t.value] for t in content.taints],
    }
    if content.components:
        meaning["components"] = [
            [c.name, c.version, list(c.presets), c.values, *(["removed"] if c.is_gone else [])]
            for c in content.components
        ]
    if content.policies:
        meaning["policies"] = [[o.api_version, o.kind, o.namespace, o.name, o.body] for o in content.policies]
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


PARTS = ("settings", "labels", "annotations", "taints", "components", "policies")


@dataclass(frozen=True, slots=True)
class ContentDifference:
    part: str
    """One of PARTS."""
    key: str
    """Of components and policy objects also what is inside: `cilium.values.ipam.mode`."""
    before: str | None
    """`>= 262144`; None: not there before."""
    after: str | None
    apply_class: str = ""

    @property
    def change(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def diff(a: Content | None, b: Content) -> list[ContentDifference]:
    """List what b means that a does not, by part and key; `a` None is empty content."""
    a = a or Content()
    out: list[ContentDifference] = []
    classes = {s.key: str(s.apply_class) for s in (*a.settings, *b.settings)}
    for part in PARTS:
        before, after = _shown(a, part), _shown(b, part)
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                settings_class = classes.get(key, "") if part == "settings" else ""
                out.append(ContentDifference(part, key, before.get(key), after.get(key), settings_class))
    return out


def _shown(content: Content, part: str) -> dict[str, str]:
    if part == "settings":
        return {s.key: s.value if s.operator == "=" else f"{s.operator} {s.value}" for s in content.settings}
    if part == "taints":
        return {t.name: t.value for t in content.taints}
    if part in ("components", "policies"):
        wants: tuple[WantedComponent | WantedObject, ...] = getattr(content, part)
        return {name: fact for want in wants for name, fact in want.facts.items()}
    marks = content.labels if part == "labels" else content.annotations
    return {mark.key: mark.value for mark in marks}
