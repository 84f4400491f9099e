"""Values as an editor shows them: a row for each usual key, and YAML for all the others; or YAML for everything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common import yaml
from common.yaml import BadYaml
from components.catalog import presentation
from components.catalog.entry import Component
from components.catalog.layering import leaves, merged
from components.values.paths import dotted

MOST_ROWS = 60
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
MAX_PATH = 300


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """The form's input, parsed into values."""

    values: Any
    problems: Mapping[str, str] = field(default_factory=dict)
    """By path of a row, else under an empty path: why what was typed cannot be read."""
    document: yaml.YamlDocument = field(default_factory=lambda: yaml.YamlDocument(None))
    """Of the YAML, for the line of each path."""

    def line(self, path: str) -> int:
        """Return the line of a finding's path, or of the nearest one above it.

        0: it is not in the text.
        """
        return next((line for where, line in _lines(self.document) if _is_at(where, path)), 0) if path else 0


def _lines(document: yaml.YamlDocument) -> list[tuple[str, int]]:
    """The deepest first."""
    lines = [(_written(path), line) for path, line in document.lines.items() if path]
    return sorted(lines, key=lambda pair: -len(pair[0]))


def _written(path: yaml.Path) -> str:
    out = ""
    for part in path:
        step = f"[{part}]" if isinstance(part, int) else dotted((part,))
        out += step if not out or step.startswith("[") else f".{step}"
    return out


def _is_at(where: str, path: str) -> bool:
    return path == where or path.startswith((f"{where}.", f"{where}["))


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def paths(component: Component, presets: Iterable[str]) -> list[str]:
    """Keys with a row of their own: what a person must decide, what people set most, and what the presets set."""
    to_decide = [
        decision.path for decision in component.decisions if not decision.presets or {*decision.presets} & {*presets}
    ]
    below = [component.values, *(component.presets[name].values for name in presets if name in component.presets)]
    from_layers = [_row(component, dotted(path)) for layer in below for path in leaves(layer)]
    known = dict.fromkeys((*to_decide, *component.usual, *from_layers))
    return [path for path in known if _PLAIN.fullmatch(path)][:MOST_ROWS]


def _row(component: Component, path: str) -> str:
    """The text itself, for what a preset merges into one."""
    return next((text for text in component.texts if path.startswith(f"{text}.")), path)


def split(values: Mapping[str, Any], rows: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """The text of each row that says something, and the values that have no row."""
    rest: dict[str, Any] = merged({}, values)
    typed: dict[str, str] = {}
    for path in rows:
        steps = path.split(".")
        way: list[dict[str, Any]] = [rest]
        while len(way) < len(steps) and isinstance(inner := way[-1].get(steps[len(way) - 1]), dict):
            way.append(inner)
        if len(way) < len(steps) or steps[-1] not in way[-1]:
            continue
        typed[path] = text_of(way[-1].pop(steps[-1]))
        for above, step in zip(reversed(way[:-1]), reversed(steps[: len(way) - 1]), strict=True):
            if not above[step]:
                del above[step]
    return typed, rest


def text_of(value: Any) -> str:
    """One line of YAML that is read as this very value."""
    if isinstance(value, str):
        try:
            is_plain = value.isprintable() and yaml.load(value).data == value
        except BadYaml:
            is_plain = False
        return value if is_plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def as_yaml(values: Mapping[str, Any]) -> str:
    return presentation.as_yaml(dict(values)) if values else ""


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def of_text(text: str) -> ParsedInput:
    """YAML of all values."""
    try:
        document = yaml.load(text)
    except BadYaml as error:
        return ParsedInput(None, {"": str(error)})
    if document.data is not None and not isinstance(document.data, dict):
        return ParsedInput(None, {"": "line 1: must be a mapping of the chart's keys to values"})
    return ParsedInput(document.data or {}, {}, document)


def of_rows(rows: Iterable[tuple[str, str]], text: str) -> ParsedInput:
    """Rows as (path, text) with the YAML of the others. A key that is given in both is a mistake."""
    read = of_text(text)
    problems = dict(read.problems)
    values: dict[str, Any] = read.values or {}
    for path, typed in rows:
        if not typed.strip():
            continue
        if len(path) > MAX_PATH or not _PLAIN.fullmatch(path):
            problems[path[:MAX_PATH]] = "is no key that has a row"
        elif _is_set(values, path):
            problems[path] = "is in the YAML below, too; set it in one place"
        else:
            try:
                values = merged(values, _nested(path.split("."), yaml.load(typed).data))
            except BadYaml as error:
                problems[path] = f"cannot be read: {error.reason}"
    return ParsedInput(None if problems else values, problems, read.document)


def _is_set(values: Any, path: str) -> bool:
    """Return whether these values set something at this path, or something above it that is no mapping."""
    for step in path.split("."):
        if not isinstance(values, Mapping):
            return True
        if step not in values:
            return False
        values = values[step]
    return True


def _nested(steps: Sequence[str], value: Any) -> dict[str, Any]:
    for step in reversed(steps):
        value = {step: value}
    return dict(value)
