"""Scalars, rows and whole parts of a profile as lines of YAML, each read back as the very text that was typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml as pyyaml

from contract.nodetuning import Operator
from profiles.document.document import WHOLE, TextDumper
from profiles.editor.form_data import PARTS, MarkLine, SettingLine, Sheet, TaintLine


def scalar(text: str) -> str:
    """Write a text as a scalar on one line that is read back as this very text."""
    if WHOLE.fullmatch(text):
        return text
    style = None if text.isprintable() else '"'
    dumped = pyyaml.dump(text, Dumper=TextDumper, default_style=style, allow_unicode=True, width=10**9)
    if not text.isprintable():
        dumped = pyyaml.dump(text, Dumper=pyyaml.SafeDumper, default_style='"', allow_unicode=True, width=10**9)
    return dumped.removesuffix("\n").removesuffix("\n...")


def quoted(text: str) -> str:
    """Write a text as `scalar` does, with quotes where it looks like a number."""
    return f"'{text}'" if WHOLE.fullmatch(text) else scalar(text)


def value_of(line: SettingLine) -> str:
    return scalar(line.value if line.operator == Operator.EQUALS else f"{line.operator} {line.value}")


def _is_operator(text: str) -> bool:
    return text in tuple(Operator)


def needs_block(line: SettingLine) -> bool:
    # `= >= 5` in one value would be read as another operator than was chosen.
    inside = line.value.lstrip(" ")[:1] in (">", "<", "=") or line.value != line.value.strip(" ")
    return bool(line.why) or inside or not _is_operator(line.operator)


def _setting(line: SettingLine, indent: str) -> list[str]:
    if not needs_block(line):
        return [f"{indent}{scalar(line.key)}: {value_of(line)}"]
    return [f"{indent}{scalar(line.key)}:", *block(line, indent + "  ")]


def block(line: SettingLine, indent: str) -> list[str]:
    plain = line.operator == Operator.EQUALS and not line.value.lstrip(" ").startswith((">", "<", "="))
    out = [] if plain else [f"{indent}operator: {quoted(line.operator)}"]
    out.append(f"{indent}value: {scalar(line.value)}")
    return [*out, f"{indent}why: {quoted(line.why)}"] if line.why else out


def _pair(row: MarkLine, indent: str) -> list[str]:
    return [f"{indent}{scalar(row.key)}: {quoted(row.value)}"]


def _taint(row: TaintLine, indent: str) -> list[str]:
    fields = [("key", row.key), *([("value", row.value)] if row.value else []), ("effect", row.effect)]
    return [f"{indent}{'  ' if number else '- '}{name}: {quoted(text)}" for number, (name, text) in enumerate(fields)]


def _removal(key: str, indent: str) -> list[str]:
    return [f"{indent}- {quoted(key)}"]


ROWS: dict[str, Callable[[Any, str], list[str]]] = {
    "settings": _setting,
    "labels": _pair,
    "annotations": _pair,
    "taints": _taint,
    "remove": _removal,
}


def part_lines(part: str, value: Any) -> list[str]:
    """A part as a block of its own, or nothing."""
    if not value:
        return []
    if part in ("extends", "description"):
        return [f"{part}: {quoted(value)}"]
    return [f"{part}:", *(text for row in value for text in ROWS[part](row, "  "))]


def sheet_text(sheet: Sheet) -> str:
    lines = [text for part in PARTS for text in part_lines(part, getattr(sheet, part))]
    return "\n".join([*lines, ""]) if lines else ""
