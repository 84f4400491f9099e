"""A profile as a form shows it: what was written or typed, field by field, right or wrong.

The YAML text stays the one truth. A sheet is read from it, and `profiles.editor.yaml_patch` writes a changed sheet back
into it; whether the values are any good is judged on the text, so that both views say the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common import yaml
from contract.nodetuning import Operator
from profiles.document.document import InvalidProfile, ProfileNote
from profiles.document.schema import MAX_DEPTH

PARTS = ("extends", "description", "settings", "labels", "annotations", "taints", "remove")
KEPT = ("components", "policies")
"""Parts that no field shows: they stay in the text, character by character, and are edited as YAML."""
_INLINE = re.compile(r" *(>=|<=|=)(.*)")


class Unreadable(InvalidProfile):
    """The text holds something that no form field can show without changing it; it can be edited as YAML."""


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting. `operator` empty: none is written, which means =."""

    key: str
    operator: str = Operator.EQUALS
    value: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class MarkLine:
    key: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class TaintLine:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Sheet:
    extends: str = ""
    description: str = ""
    settings: tuple[SettingLine, ...] = ()
    labels: tuple[MarkLine, ...] = ()
    annotations: tuple[MarkLine, ...] = ()
    taints: tuple[TaintLine, ...] = ()
    remove: tuple[str, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)
    """Line of each part in the text it was read from."""
    kept: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    """What the parts of KEPT hold in the text it was read from, unchecked."""

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, part) for part in PARTS)

    def line(self, key: str) -> SettingLine | None:
        return next((line for line in self.settings if line.key == key), None)

    def same_as(self, other: Sheet) -> bool:
        """Equal but for the order of rows, which means nothing."""
        return self._sorted() == other._sorted()

    def _sorted(self) -> tuple[Any, ...]:
        rows = [self.settings, self.labels, self.annotations, self.taints]
        return (self.extends, self.description, *(sorted(row, key=repr) for row in rows), sorted(self.remove))


def read(source: str) -> Sheet:
    """The fields of a text. Raises Unreadable, also for what is not YAML at all."""
    try:
        loaded = yaml.load(source, max_depth=MAX_DEPTH)
    except yaml.BadYaml as error:
        raise Unreadable([ProfileNote(error.field, error.line, "bad-yaml", error.reason)]) from error
    return Sheet() if loaded.data is None else _SheetReader(loaded).sheet()


def one_line(text: str) -> str:
    """Return the text as the profile's reader takes descriptions and reasons: runs of blanks are one space."""
    return " ".join(text.split())


class _SheetReader:
    def __init__(self, loaded: yaml.YamlDocument) -> None:
        self.loaded = loaded

    def sheet(self) -> Sheet:
        data = self.loaded.data
        if not isinstance(data, dict):
            raise self._no((), "is not a mapping")
        for name in data:
            if name not in PARTS and name not in KEPT:
                raise self._no((name,), "is not a part of a profile")
        return Sheet(
            extends=self._text(("extends",), data.get("extends")),
            description=self._prose(("description",), data.get("description")),
            settings=tuple(self._line(key, raw) for key, raw in self._mapping("settings").items()),
            labels=tuple(self._pair("labels", key, raw) for key, raw in self._mapping("labels").items()),
            annotations=tuple(self._pair("annotations", key, raw) for key, raw in self._mapping("annotations").items()),
            taints=tuple(self._taint(index, raw) for index, raw in enumerate(self._list("taints"))),
            remove=tuple(self._text(("remove", index), raw) for index, raw in enumerate(self._list("remove"))),
            lines={name: self.loaded.line(name) for name in data},
            kept={name: data[name] for name in KEPT if name in data},
        )

    def _no(self, path: yaml.Path, what: str) -> Unreadable:
        shown = yaml.dotted(path).encode("unicode_escape").decode()[:200]
        return Unreadable(
            [ProfileNote(shown, self.loaded.line(*path), "not-in-form", f"{what}, which the form cannot show")]
        )

    def _mapping(self, part: str) -> dict[str, Any]:
        raw = self.loaded.data.get(part)
        if not isinstance(raw, dict | None):
            raise self._no((part,), "is not a mapping")
        for key in raw or ():
            self._printable((part, key), key)
        return raw or {}

    def _list(self, part: str) -> list[Any]:
        raw = self.loaded.data.get(part)
        if not isinstance(raw, list | None):
            raise self._no((part,), "is not a list")
        return raw or []

    def _printable(self, path: yaml.Path, text: str, also: str = "") -> str:
        if any(not (c.isprintable() or c in also) for c in text):
            raise self._no(path, "holds a line break or a character without a shape")
        return text

    def _text(self, path: yaml.Path, raw: Any) -> str:
        if isinstance(raw, bool):
            return "true" if raw else "false"
        if not isinstance(raw, str | int | float | None):
            raise self._no(path, "is not a single value")
        return self._printable(path, "" if raw is None else str(raw))

    def _prose(self, path: yaml.Path, raw: Any) -> str:
        return self._printable(path, one_line(raw)) if isinstance(raw, str) else self._text(path, raw)

    def _value(self, path: yaml.Path, raw: Any) -> str:
        if isinstance(raw, list):
            return " ".join(self._text((*path, index), item) for index, item in enumerate(raw))
        return self._text(path, raw)

    def _line(self, key: str, raw: Any) -> SettingLine:
        path: yaml.Path = ("settings", key)
        if not isinstance(raw, dict):
            return _split(key, "", self._value(path, raw), "")
        for name in raw:
            if name not in ("value", "operator", "why"):
                raise self._no((*path, name), "is not value, operator or why")
        value = self._value((*path, "value"), raw.get("value"))
        why = self._prose((*path, "why"), raw.get("why"))
        operator = self._text((*path, "operator"), raw.get("operator"))
        return SettingLine(key, operator, value, why) if operator else _split(key, operator, value, why)

    def _pair(self, part: str, key: str, raw: Any) -> MarkLine:
        if part == "annotations" and isinstance(raw, str):
            return MarkLine(key, self._printable((part, key), raw, also="\n\t"))
        return MarkLine(key, self._text((part, key), raw))

    def _taint(self, index: int, raw: Any) -> TaintLine:
        path: yaml.Path = ("taints", index)
        if not isinstance(raw, dict) or raw.keys() - {"key", "value", "effect"}:
            raise self._no(path, "is not a taint with key, value and effect")
        return TaintLine(*(self._text((*path, name), raw.get(name)) for name in ("key", "value", "effect")))


def _split(key: str, operator: str, value: str, why: str) -> SettingLine:
    """`>= 262144` in one value is an operator and a value, as the profile's reader takes it."""
    if match := _INLINE.fullmatch(value):
        operator, value = match[1], match[2].strip(" ")
    return SettingLine(key, operator or str(Operator.EQUALS), value, why)
