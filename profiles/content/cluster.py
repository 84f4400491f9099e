"""Content of a revision for the cluster itself, beside its nodes: Helm components and policy objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def canonical(value: Any) -> str:
    """One text for equal JSON values: what is compared, hashed and put into digests. `1` and `true` differ in it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`: mappings key by key, anything else replaced as a whole, lists too.

    null replaces as well and stays: Helm takes it for "without this value, not even the chart's own".
    """
    out = dict(below)
    for key, value in above.items():
        under = out.get(key)
        out[key] = merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return out


def leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path, JSON) of everything in `value` that is no mapping: `values.ipam.mode`, `spec.hard["requests.x.y/z"]`."""
    if not isinstance(value, Mapping) or not value:
        yield path, json.dumps(value, ensure_ascii=False)
        return
    for key in sorted(value):
        yield from leaves(value[key], joined(path, key))


def joined(path: str, key: str) -> str:
    return f"{path}.{key}" if _PLAIN.fullmatch(key) else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


@dataclass(frozen=True, slots=True, eq=False)
class WantedComponent:
    """A Helm release of the components' catalog."""

    name: str
    version: str = ""
    """The chart's; empty: the newest that the catalog has tested."""
    presets: tuple[str, ...] = ()
    """Laid over one another in this order."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON, never changed in place. Equal when their canonical JSON is."""
    origin: str = ""
    why: str = ""
    is_gone: bool = False
    """It is to be removed where it is installed; then nothing else is given for it."""

    @property
    def meaning(self) -> tuple[str, str, tuple[str, ...], str, bool]:
        return (self.name, self.version, self.presets, canonical(self.values), self.is_gone)

    @property
    def facts(self) -> dict[str, str]:
        """Return its content, value by value, as differences show it."""
        if self.is_gone:
            return {self.name: "removed"}
        out = {self.name: self.version or "newest tested version"}
        if self.presets:
            out[f"{self.name}.presets"] = ", ".join(self.presets)
        return out | (dict(leaves(self.values, f"{self.name}.values")) if self.values else {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WantedComponent):
            return NotImplemented
        return (self.meaning, self.origin, self.why) == (other.meaning, other.origin, other.why)

    def __hash__(self) -> int:
        return hash((self.meaning, self.origin, self.why))

    def __str__(self) -> str:
        return f"{self.name} removed" if self.is_gone else f"{self.name} {self.version}".rstrip()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "presets": list(self.presets),
            "values": dict(self.values),
            "origin": self.origin,
            "why": self.why,
            **({"remove": True} if self.is_gone else {}),  # digests of revisions without it are as they were
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> WantedComponent:
        """Read what `to_json` wrote. Raises AttributeError, KeyError or TypeError for anything else."""
        return cls(
            name=raw["name"],
            version=raw.get("version", ""),
            presets=tuple(raw.get("presets", ())),
            values=dict(raw.get("values") or {}),
            origin=raw.get("origin", ""),
            why=raw.get("why", ""),
            is_gone=raw.get("remove", False) is True,
        )


@dataclass(frozen=True, slots=True, eq=False)
class WantedObject:
    """A Kubernetes object that sets policy: a quota, a queue, a priority class."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    """Empty for kinds that belong to the cluster."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Everything but apiVersion, kind and the name and namespace in metadata. Equal when its canonical JSON is."""
    origin: str = ""

    @property
    def title(self) -> str:
        """Identity within a profile: `Queue/default`, `ResourceQuota/team-a/gpu`."""
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)

    @property
    def manifest(self) -> dict[str, Any]:
        """The object as Kubernetes takes it."""
        body = dict(self.body)
        metadata = {"name": self.name, **({"namespace": self.namespace} if self.namespace else {})}
        metadata |= body.pop("metadata", {})
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **body}

    @property
    def meaning(self) -> tuple[str, str, str, str, str]:
        return (self.api_version, self.kind, self.namespace, self.name, canonical(self.body))

    @property
    def facts(self) -> dict[str, str]:
        """Return its content, field by field, as differences show it."""
        out = {self.title: self.api_version}
        for key in sorted(self.body):
            out |= dict(leaves(self.body[key], f"{self.title} {key}"))
        return out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WantedObject):
            return NotImplemented
        return (self.meaning, self.origin) == (other.meaning, other.origin)

    def __hash__(self) -> int:
        return hash((self.meaning, self.origin))

    def __str__(self) -> str:
        return self.title

    def to_json(self) -> dict[str, Any]:
        return {
            "api_version": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "body": dict(self.body),
            "origin": self.origin,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> WantedObject:
        """Read what `to_json` wrote. Raises AttributeError, KeyError or TypeError for anything else."""
        return cls(
            api_version=raw["api_version"],
            kind=raw["kind"],
            name=raw["name"],
            namespace=raw.get("namespace", ""),
            body=dict(raw.get("body") or {}),
            origin=raw.get("origin", ""),
        )
