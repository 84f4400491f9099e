"""A profile document in memory, the notes on it, and its one canonical layout as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml as pyyaml

from common import yaml
from common.errors import Invalid
from contract.nodetuning import Operator
from profiles.content.cluster import WantedObject, canonical

BLOCK, WARN = "block", "warn"


@dataclass(frozen=True, slots=True)
class ProfileNote:
    """A problem or a warning, with its place. `line` counts from 1; 0: to be looked up by `path`."""

    path: str
    line: int
    code: str
    message: str
    severity: str = field(default=BLOCK, compare=False)
    """BLOCK or WARN, for rooms that answer `common.hooks.profile_findings`; elsewhere the list it is in says which."""

    @property
    def field(self) -> str:
        return f"{self.path or 'profile'} (line {self.line})"

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "line": self.line, "code": self.code, "message": self.message}


class InvalidProfile(Invalid):
    """The document cannot be published. `problems` in the order of their lines; `fields` say the same to programs."""

    def __init__(self, problems: Sequence[ProfileNote]) -> None:
        self.problems = tuple(sorted(problems, key=lambda note: note.line))
        fields: dict[str, list[str]] = {}
        for note in self.problems:
            fields.setdefault(note.field, []).append(note.message)
        count = len(self.problems)
        first = self.problems[0]
        more = f" (and {count - 1} more)" if count > 1 else ""
        super().__init__(f"{first.field}: {first.message}{more}", fields=fields)


@dataclass(frozen=True, slots=True)
class Extends:
    profile: str
    number: int | None
    """None: the newest revision at the time of publishing."""

    def __str__(self) -> str:
        return self.profile if self.number is None else f"{self.profile} r{self.number}"


@dataclass(frozen=True, slots=True)
class DocumentSetting:
    key: str
    operator: str
    value: str
    why: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class DocumentComponent:
    """A Helm release, as one document says it; what it does not say is inherited."""

    name: str
    version: str = ""
    presets: tuple[str, ...] | None = None
    """None: those of the revision it extends."""
    values: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    is_gone: bool = False
    """`remove: true`: it is taken out of the clusters where it is installed."""

    @property
    def _meaning(self) -> tuple[Any, ...]:
        return (self.name, self.version, self.presets, canonical(self.values), self.why, self.is_gone)

    def __eq__(self, other: object) -> bool:
        return self._meaning == other._meaning if isinstance(other, DocumentComponent) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._meaning)


@dataclass(frozen=True, slots=True)
class ProfileDocument:
    """Content of one YAML text, canonical and sorted; equal documents differ at most in layout."""

    extends: Extends | None = None
    description: str = ""
    settings: tuple[DocumentSetting, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    """(key, effect, value)"""
    components: tuple[DocumentComponent, ...] = ()
    policies: tuple[WantedObject, ...] = ()
    """Without origins."""
    remove: tuple[str, ...] = ()
    warnings: tuple[ProfileNote, ...] = field(default=(), compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Line of each `settings.<key>`, `extends` and so on; of components and policies also what is inside."""

    def line(self, path: str) -> int:
        """Return the line of the path.

        Within a component or an object, else the line of what contains it; else of the document it is inherited from.
        """
        near = path
        while near.startswith(("components.", "policies.", "policies[")) and near not in self.lines:
            near = near[: max(near.rfind("."), near.rfind("["), 0)]
        return self.lines.get(near) or self.lines.get("extends") or 1


def printable_path(path: yaml.Path) -> str:
    """Dotted, with rubbish made readable: it ends up in messages and field names."""
    return yaml.dotted(path).encode("unicode_escape").decode()[:200]


WHOLE = re.compile(r"0|-?[1-9][0-9]{0,30}")


def render(document: ProfileDocument) -> str:
    """The document as YAML in one layout; `parse` reads it back equal."""
    out: dict[str, Any] = {}
    if document.extends:
        out["extends"] = str(document.extends)
    if document.description:
        out["description"] = document.description
    if document.settings:
        out["settings"] = {wish.key: _rendered(wish) for wish in document.settings}
    for part in ("labels", "annotations"):
        if pairs := getattr(document, part):
            out[part] = dict(pairs)
    if document.taints:
        out["taints"] = [
            {"key": key, **({"value": value} if value else {}), "effect": effect}
            for key, effect, value in document.taints
        ]
    if document.components:
        out["components"] = {wish.name: _component(wish) for wish in document.components}
    if document.policies:
        out["policies"] = [policy.manifest for policy in document.policies]
    if document.remove:
        out["remove"] = list(document.remove)
    return dump(out) if out else ""


def dump(data: Any, *, sort_keys: bool = False) -> str:
    """YAML that `common.yaml` reads back as this very data."""
    return pyyaml.dump(data, Dumper=_FastTextDumper, sort_keys=sort_keys, allow_unicode=True, width=100)


def _component(wish: DocumentComponent) -> dict[str, Any]:
    out: dict[str, Any] = {"remove": True} if wish.is_gone else {}
    if wish.version:
        out["version"] = wish.version
    if wish.presets is not None:
        out["presets"] = list(wish.presets)
    if wish.values:
        out["values"] = dict(wish.values)
    return out | ({"why": wish.why} if wish.why else {})


class TextDumper(pyyaml.SafeDumper):
    """Quotes text that YAML 1.2 might read as a number: PyYAML thinks of 1.1, where `0o7` and `1e5` are words."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value that occurs twice twice: aliases are not read back."""
        return True


def _text(dumper: TextDumper, value: str) -> pyyaml.ScalarNode:
    style = "|" if "\n" in value else None if value[:1].isalpha() else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


class _FastTextDumper(getattr(pyyaml, "CSafeDumper", pyyaml.SafeDumper)):  # type: ignore[misc]  # chosen at run time
    """TextDumper written in C: values of components may be tens of thousands of lines."""

    ignore_aliases = TextDumper.ignore_aliases


TextDumper.add_representer(str, _text)
_FastTextDumper.add_representer(str, _text)


def _rendered(wish: DocumentSetting) -> Any:
    value: int | str = int(wish.value) if WHOLE.fullmatch(wish.value) else wish.value
    if wish.operator == Operator.EQUALS and not wish.why:
        return value
    out: dict[str, Any] = {}
    if wish.operator != Operator.EQUALS:
        out["operator"] = wish.operator
    out["value"] = value
    return out | ({"why": wish.why} if wish.why else {})
