"""A profile document in memory, what is said about it, and its one canonical layout as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml as pyyaml

from common.errors import Invalid
from contract.nodetuning import Operator

BLOCK, WARN = "block", "warn"


@dataclass(frozen=True, slots=True)
class Note:
    """A problem or a warning, where it stands. `line` counts from 1; 0: to be looked up by `path`."""

    path: str
    line: int
    code: str
    message: str
    severity: str = field(default=BLOCK, compare=False)
    """BLOCK or WARN, for those who answer `common.hooks.profile_findings`; elsewhere the list it is in says which."""

    @property
    def field(self) -> str:
        return f"{self.path or 'profile'} (line {self.line})"

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "line": self.line, "code": self.code, "message": self.message}


class InvalidProfile(Invalid):
    """The document cannot be published. `problems` in the order of their lines; `fields` say the same to programs."""

    def __init__(self, problems: Sequence[Note]) -> None:
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
class Wish:
    key: str
    operator: str
    value: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """What one YAML text says, canonical and sorted; equal documents differ at most in layout."""

    extends: Extends | None = None
    description: str = ""
    settings: tuple[Wish, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    """(key, effect, value)"""
    remove: tuple[str, ...] = ()
    warnings: tuple[Note, ...] = field(default=(), compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Line of each `settings.<key>`, `extends` and so on."""

    def line(self, path: str) -> int:
        return self.lines.get(path) or self.lines.get("extends") or 1


WHOLE = re.compile(r"0|-?[1-9][0-9]{0,30}")


def render(document: Document) -> str:
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
    if document.remove:
        out["remove"] = list(document.remove)
    return pyyaml.dump(out, Dumper=TextDumper, sort_keys=False, allow_unicode=True, width=100) if out else ""


class TextDumper(pyyaml.SafeDumper):
    """Quotes text that YAML 1.2 might read as a number: PyYAML thinks of 1.1, where `0o7` and `1e5` are words."""


def _text(dumper: TextDumper, value: str) -> pyyaml.ScalarNode:
    style = None if value[:1].isalpha() else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


TextDumper.add_representer(str, _text)


def _rendered(wish: Wish) -> Any:
    value: int | str = int(wish.value) if WHOLE.fullmatch(wish.value) else wish.value
    if wish.operator == Operator.EQUALS and not wish.why:
        return value
    out: dict[str, Any] = {}
    if wish.operator != Operator.EQUALS:
        out["operator"] = wish.operator
    out["value"] = value
    return out | ({"why": wish.why} if wish.why else {})
