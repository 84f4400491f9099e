"""A Kubernetes object as text: read with the house's bounds, its kind checked, and what is not taken named by path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from common import yaml
from profiles.imports.draft import DraftBuilder, invalid

_BLOCK = re.compile(r"[|>][-+0-9]*[ \t]*(#.*)?$")
IDENTITY = ("name", "namespace")
"""What of an object's metadata is no content."""


class Manifest:
    """One object, and the draft that it becomes."""

    def __init__(self, text: str, kinds: Sequence[tuple[str, str]]) -> None:
        """Read an object of one of these kinds, each (API group, kind). Raises Invalid."""
        try:
            self.document = yaml.load(text)
        except yaml.BadYaml as error:
            raise invalid(str(error)) from error
        data = self.document.data
        expected = " or ".join(f"{kind} of {group}" for group, kind in kinds)
        if not isinstance(data, dict):
            raise invalid(f"Must be a Kubernetes object: {expected}.")
        group, kind = str(data.get("apiVersion")).partition("/")[0], data.get("kind")
        if not isinstance(kind, str) or (group, kind) not in kinds:
            raise invalid(f"line {self.document.line('kind')}: must be a {expected}, not {str(kind)[:60]!a}.")
        self.data: dict[str, Any] = data
        self.builder = DraftBuilder()
        self._lines = text.split("\n")
        self.name_rest((), {"apiVersion", "kind", "metadata", "spec"}, "is not what the object wants")
        self.name_rest(("metadata",), set(IDENTITY), "is about the object, and a profile has none")

    def at(self, *path: str | int) -> Any:
        """Return the value at this path; None where there is none."""
        value: Any = self.data
        for part in path:
            if isinstance(part, int):
                value = value[part] if isinstance(value, list) and part < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return value

    def mapping(self, *path: str | int) -> dict[str, Any]:
        """Return the mapping at this path; anything else there is named, and read as empty."""
        value = self.at(*path)
        if value is not None and not isinstance(value, dict):
            self.refuse(path, "must be a mapping")
        return value if isinstance(value, dict) else {}

    def items(self, *path: str | int) -> list[Any]:
        """Return the list at this path; anything else there is named, and read as empty."""
        value = self.at(*path)
        if value is not None and not isinstance(value, list):
            self.refuse(path, "must be a list")
        return value if isinstance(value, list) else []

    def line(self, *path: str | int) -> int:
        return self.document.line(*path)

    def refuse(self, path: yaml.Path, reason: str) -> None:
        value = self.at(*path)
        shown = "" if isinstance(value, dict | list) else f": {value if isinstance(value, str) else json.dumps(value)}"
        self.builder.refuse(self.line(*path), f"{yaml.dotted(path)}{shown}", reason)

    def name_rest(self, path: yaml.Path, known: Iterable[str], reason: str) -> None:
        """Name each field at this path but the known ones."""
        for name in self.mapping(*path):
            if name not in known:
                self.refuse((*path, name), reason)

    def line_of(self, *path: str | int) -> Callable[[int], int]:
        """Turn lines of the text at this path into lines of the file; of a quoted text, into that of its key."""
        first = self.line(*path)
        if _BLOCK.search(self._lines[first - 1] if first <= len(self._lines) else ""):
            return lambda number: first + number
        return lambda number: first
