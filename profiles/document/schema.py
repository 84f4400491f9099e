"""The profile document: YAML as people write it, judged by itself, each problem with its path and line.

What it means on top of the revision it extends is `profiles.document.layering`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from common import yaml
from contract import keys
from profiles.content.content import Content, WantedSetting, diff, digest
from profiles.document import setting_check
from profiles.document.cluster_schema import ClusterReader
from profiles.document.document import (
    DocumentSetting,
    Extends,
    InvalidProfile,
    ProfileDocument,
    ProfileNote,
    printable_path,
    render,
)
from profiles.document.layering import Checked, flatten
from profiles.policies import node_labels

__all__ = [
    "Checked",
    "Content",
    "InvalidProfile",
    "ProfileDocument",
    "ProfileNote",
    "WantedSetting",
    "diff",
    "digest",
    "flatten",
    "parse",
    "render",
]

MAX_DEPTH = 24
"""Values of a component may have 16 levels; the rest is room for a wrong indentation to be named as such."""
MAX_WHY = 500
MAX_DESCRIPTION = 300
MAX_MARKS = 64

_PARTS = (
    "extends", "description", "settings", "labels", "annotations", "taints", "components", "policies", "remove",
)  # fmt: skip
_EXTENDS = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?: r([1-9][0-9]{0,8}))?")
_REMOVABLE = ("labels.", "annotations.", "taints.", "components.", "policies.")


def parse(text: str | bytes) -> ProfileDocument:
    """Read a profile document. Raises InvalidProfile for any text that is not one, and nothing else."""
    try:
        loaded = yaml.load(text, max_depth=MAX_DEPTH)
    except yaml.BadYaml as error:
        raise InvalidProfile([ProfileNote(error.field, error.line, "bad-yaml", error.reason)]) from error
    if loaded.data is None:
        return ProfileDocument()
    return _DocumentReader(loaded).document()


class _DocumentReader:
    """One pass over one loaded text; `problems` and `warnings` grow as it goes."""

    def __init__(self, loaded: yaml.YamlDocument) -> None:
        self.loaded = loaded
        self.problems: list[ProfileNote] = []
        self.warnings: list[ProfileNote] = []
        self.lines: dict[str, int] = {}

    def document(self) -> ProfileDocument:
        data = self.loaded.data
        if not isinstance(data, dict):
            self._refuse((), "bad-shape", f"a profile is a mapping with {', '.join(_PARTS)}")
            raise InvalidProfile(self.problems)
        for name in data:
            if name not in _PARTS:
                self._refuse((name,), "unknown-field", f"is not a part of a profile; there are {', '.join(_PARTS)}")
        extends = self._extends()
        settings = self._settings()
        labels = self._marks("labels", node_labels.label)
        annotations = self._marks("annotations", node_labels.annotation)
        cluster = ClusterReader(self.loaded, self.problems, self.warnings, self.lines)
        out = ProfileDocument(
            extends=extends,
            description=self._line_of_text(("description",), data.get("description"), MAX_DESCRIPTION),
            settings=tuple(sorted(settings, key=lambda wish: wish.key)),
            labels=tuple(sorted(labels.items())),
            annotations=tuple(sorted(annotations.items())),
            taints=tuple(sorted(self._taints())),
            components=cluster.components(self._part("components", dict, "a mapping from names to what is wanted")),
            policies=cluster.policies(self._part("policies", list, "a list of Kubernetes objects")),
            remove=tuple(sorted(self._remove())),
            warnings=tuple(self.warnings),
            lines=self.lines,
        )
        if self.problems:
            raise InvalidProfile(self.problems)
        return out

    def _note(self, path: yaml.Path, code: str, message: str) -> ProfileNote:
        return ProfileNote(printable_path(path), self.loaded.line(*path), code, message)

    def _refuse(self, path: yaml.Path, code: str, message: str) -> None:
        self.problems.append(self._note(path, code, message))

    def _line_of_text(self, path: yaml.Path, raw: Any, most: int) -> str:
        if raw is None:
            return ""
        if not isinstance(raw, str):
            self._refuse(path, "bad-shape", "must be text; put it in quotes")
            return ""
        text = " ".join(raw.split())
        if len(text) > most:
            self._refuse(path, "too-long", f"is {len(text)} characters long; at most {most} are kept")
        elif not text.isprintable():
            self._refuse(path, "bad-text", "contains a character that cannot be shown")
        return text[:most]

    def _extends(self) -> Extends | None:
        raw = self.loaded.data.get("extends")
        if raw is None:
            return None
        self.lines["extends"] = self.loaded.line("extends")
        match = _EXTENDS.fullmatch(raw) if isinstance(raw, str) else None
        if not match:
            self._refuse(
                ("extends",), "bad-extends", "must be a profile's name, with or without a revision: gpu-baseline r3"
            )
            return None
        return Extends(match[1], int(match[2]) if match[2] else None)

    def _part(self, name: str, kind: type[dict[str, Any]] | type[list[Any]], shown: str) -> Any:
        """The part, or an empty one: absent and null say the same."""
        raw = self.loaded.data.get(name)
        if raw is None:
            return kind()
        if not isinstance(raw, kind):
            self._refuse((name,), "bad-shape", f"must be {shown}")
            return kind()
        return raw

    def _settings(self) -> list[DocumentSetting]:
        seen: dict[str, str] = {}
        out: list[DocumentSetting] = []
        for written, raw in self._part("settings", dict, "a mapping from keys to values").items():
            path: yaml.Path = ("settings", written)
            try:
                name = setting_check.key(written)
                if name in seen:
                    raise setting_check.SettingRefused(f"is the same key as {seen[name]}", code="given-twice")
                seen[name] = written
                out.append(self._wish(path, name, raw))
            except setting_check.SettingRefused as refusal:
                at = (*path, refusal.part) if refusal.part and isinstance(raw, dict) and refusal.part in raw else path
                self._refuse(at, refusal.code, str(refusal))
                continue
            self.lines[f"settings.{name}"] = self.loaded.line(*path)
        return out

    def _wish(self, path: yaml.Path, name: str, raw: Any) -> DocumentSetting:
        operator, value, why = None, raw, ""
        if isinstance(raw, dict):
            for unknown in raw.keys() - {"value", "operator", "why"}:
                self._refuse((*path, unknown), "unknown-field", "is not known here; there are value, operator and why")
            operator, value = raw.get("operator"), raw.get("value")
            why = self._line_of_text((*path, "why"), raw.get("why"), MAX_WHY)
        parsed = setting_check.ask(name, value, operator)
        self.warnings += [self._note(path, code, message) for code, message in parsed.cautions]
        return DocumentSetting(parsed.key, parsed.operator, parsed.value, why)

    def _marks(self, part: str, check: Callable[[Any, Any], str | None]) -> dict[str, str]:
        out: dict[str, str] = {}
        raw = self._part(part, dict, "a mapping from names to text")
        if len(raw) > MAX_MARKS:
            self._refuse((part,), "too-many", f"holds {len(raw)} entries; at most {MAX_MARKS} are accepted")
            return out
        for name, value in raw.items():
            if reason := check(name, value):
                self._refuse((part, name), "bad-mark", reason)
            else:
                out[name] = value
                self.lines[f"{part}.{name}"] = self.loaded.line(part, name)
        return out

    def _taints(self) -> list[tuple[str, str, str]]:
        out: dict[tuple[str, str], str] = {}
        raw = self._part("taints", list, "a list of taints, each with key, value and effect")
        if len(raw) > MAX_MARKS:
            self._refuse(("taints",), "too-many", f"holds {len(raw)} entries; at most {MAX_MARKS} are accepted")
            return []
        for index, item in enumerate(raw):
            path: yaml.Path = ("taints", index)
            if reason := node_labels.taint(item):
                self._refuse(path, "bad-taint", reason)
                continue
            name = (item["key"], item["effect"])
            if name in out:
                self._refuse(path, "given-twice", f"{item['key']}:{item['effect']} is given twice")
                continue
            out[name] = item.get("value") or ""
            self.lines[f"taints.{item['key']}:{item['effect']}"] = self.loaded.line(*path)
            if item["effect"] == "NoExecute":
                message = "every running pod without a toleration is evicted at once, despite its disruption budget"
                self.warnings.append(self._note(path, "evicts", message))
        return [(key, effect, value) for (key, effect), value in out.items()]

    def _remove(self) -> set[str]:
        out: set[str] = set()
        for index, item in enumerate(self._part("remove", list, "a list of keys to give up")):
            path: yaml.Path = ("remove", index)
            if not isinstance(item, str):
                self._refuse(path, "bad-shape", "must be a key")
                continue
            try:
                name = item if item.startswith(_REMOVABLE) else keys.normalize(item)
            except keys.BadKey as error:
                self._refuse(path, "bad-key", str(error))
                continue
            if name in out:
                self._refuse(path, "given-twice", f"{name} is given twice")
            out.add(name)
            self.lines[f"remove.{name}"] = self.loaded.line(*path)
        return out
