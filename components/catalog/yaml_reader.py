"""One mapping of a YAML file, taken apart field by field: a field that no reader takes is a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from components.catalog.versions import Citation
from components.values.clauses import Clause


class BadCatalog(ValueError):
    """A catalog file is invalid; raised when it is read."""


class YamlMapping:
    """One mapping of the file. Fields that are taken are checked; `done` refuses those that were not taken."""

    def __init__(
        self, file: str, document: yaml.YamlDocument, path: yaml.Path, sources: Mapping[str, Citation]
    ) -> None:
        self.file, self.document, self.path, self.sources = file, document, path, sources
        raw = document.data
        for step in path:
            raw = raw[step]
        if not isinstance(raw, dict):
            raise self.bad("must be a mapping")
        self.raw: dict[str, Any] = raw
        self.taken: set[str] = set()

    def bad(self, reason: str, *deeper: str | int) -> BadCatalog:
        path = (*self.path, *deeper)
        place = yaml.dotted(path)
        return BadCatalog(f"{self.file}, line {self.document.line(*path)}: {place + ': ' if place else ''}{reason}")

    def _take(self, name: str, kind: type | tuple[type, ...], default: Any, what: str) -> Any:
        self.taken.add(name)
        if name not in self.raw:
            if default is None:
                raise self.bad(f"{name} is missing")
            return default
        value = self.raw[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.bad(f"must be {what}", name)
        return value

    def text(self, name: str, default: str | None = None, *, one_of: tuple[str, ...] = ()) -> str:
        value = str(self._take(name, str, default, "text (in quotes, if it looks like a number)")).strip()
        if default is None and not value:
            raise self.bad("must not be empty", name)
        if one_of and value not in one_of:
            raise self.bad(f"{value!r} is none of {', '.join(one_of)}", name)
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        return bool(self._take(name, bool, default, "true or false"))

    def texts(self, name: str, *, known: tuple[str, ...] = ()) -> tuple[str, ...]:
        values = self._take(name, list, (), "a list")
        for index, value in enumerate(values):
            if not isinstance(value, str) or not value:
                raise self.bad("must be text", name, index)
            if known and value not in known:
                raise self.bad(f"{value!r} is none of {', '.join(known)}", name, index)
        if len({*values}) != len(values):
            raise self.bad("names something twice", name)
        return tuple(values)

    def mapping(self, name: str) -> dict[str, Any]:
        return dict(self._take(name, dict, {}, "a mapping"))

    def pairs(self, name: str) -> dict[str, str]:
        raw = self.mapping(name)
        for key, value in raw.items():
            if not isinstance(value, str) or not value:
                raise self.bad("must be text", name, key)
        return raw

    def parts(self, name: str, *, at_least: int = 0) -> list[YamlMapping]:
        values = self._take(name, list, () if not at_least else None, "a list")
        if len(values) < at_least:
            raise self.bad("must not be empty", name)
        return [self._part(name, index) for index in range(len(values))]

    def named_parts(self, name: str) -> dict[str, YamlMapping]:
        return {key: self._part(name, key) for key in self.mapping(name)}

    def part(self, name: str) -> YamlMapping:
        self.mapping(name)
        if name not in self.raw:
            raise self.bad(f"{name} is missing")
        return self._part(name)

    def _part(self, *deeper: str | int) -> YamlMapping:
        return YamlMapping(self.file, self.document, (*self.path, *deeper), self.sources)

    def cited(self, *, at_least: int = 0) -> tuple[Citation, ...]:
        """Return the sources that `sources: [CV, CT]` names among the file's own sources."""
        named = self.texts("sources")
        for index, key in enumerate(named):
            if key not in self.sources:
                raise self.bad(f"{key!r} is not among the file's own sources", "sources", index)
        if len(named) < at_least:
            raise self.bad("says nothing of where it comes from: sources is missing")
        return tuple(self.sources[key] for key in named)

    def clauses(self, name: str) -> tuple[Clause, ...]:
        raw = self.mapping(name)
        for path, value in raw.items():
            if isinstance(value, dict | list):
                raise self.bad("must be one value to compare with", name, path)
        return tuple(Clause(path, value) for path, value in raw.items())

    def done(self) -> None:
        if unknown := sorted({*self.raw} - self.taken):
            raise self.bad(f"unknown; known here are {', '.join(sorted(self.taken))}", unknown[0])
