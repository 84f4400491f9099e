"""Writes a changed sheet into the YAML it was read from, touching only what changed: comments and layout stay.

Works on the text by the marks of the parser's nodes. What comes out is read again and compared with what was asked for;
a layout that this module does not understand is written again, and the comments lost by that are named.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import yaml as pyyaml

from common.errors import Invalid
from profiles.document.document import dump
from profiles.editor import form_data
from profiles.editor.form_data import KEPT, PARTS, SettingLine, Sheet, Unreadable
from profiles.editor.yaml_format import ROWS, block, needs_block, part_lines, quoted, scalar, sheet_text, value_of

_Loader = getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader)
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#[^\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rewritten:
    source: str
    lost: tuple[str, ...] = ()
    """Comments of the text before that are not in `source`."""


def write(sheet: Sheet, onto: str = "") -> Rewritten:
    """`onto` with the fields of `sheet`. Raises Invalid when two rows have one name or no YAML can hold a field."""
    _refuse_twice(sheet)
    try:
        before: Sheet | None = form_data.read(onto)
    except Unreadable:
        before = None
    if before is not None and before == sheet:
        return Rewritten(onto)
    attempts: list[Callable[[], str]] = [lambda: sheet_text(sheet)]
    if before is not None:
        known = before
        attempts = [
            lambda: _Edit(onto).to(known, sheet),
            lambda: sheet_text(sheet) + _Edit(onto).kept(),
            lambda: sheet_text(sheet) + (dump(known.kept) if known.kept else ""),
        ]
    for attempt in attempts:
        try:
            source = attempt()
            written = form_data.read(source)
        except (_CannotEdit, Unreadable, pyyaml.YAMLError):
            continue
        if written.same_as(sheet) and (before is None or _same(written.kept, before.kept)):
            return Rewritten(source, tuple((Counter(comments(onto)) - Counter(comments(source))).elements()))
    raise Invalid("YAML cannot hold what was typed.", fields=_unwritable(sheet))


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def _unwritable(sheet: Sheet) -> dict[str, list[str]]:
    """Name the fields that hold a character without a shape, such as U+0000."""
    fields: dict[str, list[str]] = {}
    for part in PARTS:
        value = getattr(sheet, part)
        for row in (value,) if isinstance(value, str) else value:
            texts = (row,) if isinstance(row, str) else astuple(row)
            also = "\n\t" if part == "annotations" else ""
            if bad := next((c for text in texts for c in text if not (c.isprintable() or c in also)), None):
                name = part if row is value else f"{part}.{texts[0].encode('unicode_escape').decode()[:100]}"
                fields[name] = [f"{name} holds the character U+{ord(bad):04X}, which cannot be shown; remove it."]
    return fields or {"source": ["Holds a character that cannot be written."]}


def _refuse_twice(sheet: Sheet) -> None:
    fields: dict[str, list[str]] = {}
    for part in ("settings", "labels", "annotations"):
        for key, count in Counter(row.key for row in getattr(sheet, part)).items():
            if count > 1:
                fields[f"{part}.{key}"] = [f"{key or 'a row without a name'} is given {count} times; keep one."]
    if fields:
        raise Invalid("Two rows have the same name.", fields=fields)


def comments(source: str) -> list[str]:
    """Every comment, unchanged: what looks like one inside a value is none."""
    try:
        scalars = [token for token in pyyaml.scan(source, Loader=_Loader) if isinstance(token, pyyaml.ScalarToken)]
        taken = [(token.start_mark.index, token.end_mark.index) for token in scalars]
    except pyyaml.YAMLError:
        return []
    out, at = [], 0
    for match in _COMMENT.finditer(source):
        while at < len(taken) and taken[at][1] <= match.start():
            at += 1
        if at == len(taken) or match.start() < taken[at][0]:
            out.append(match[0].strip())
    return out


# ── Editing in place ──────────────────────────────────────────────────────────────────────────────────────────────────
class _CannotEdit(Exception):
    """This layout is not understood."""


class _Edit:
    """Collects replacements of stretches of one text; `to` applies them from the end."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.changes: list[tuple[int, int, str]] = []
        loader = _Loader(source)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        if root is not None and (not isinstance(root, pyyaml.MappingNode) or root.flow_style):
            raise _CannotEdit
        self.root = root
        self.parts: dict[str, tuple[pyyaml.Node, pyyaml.Node]] = {
            key.value: (key, value) for key, value in (root.value if root is not None else [])
        }

    def to(self, before: Sheet, after: Sheet) -> str:
        for part in PARTS:
            old, new = getattr(before, part), getattr(after, part)
            if old == new:
                continue
            if part not in self.parts:
                self._add_part(part, new)
            elif part in ("extends", "description"):
                self._set_scalar_part(part, new)
            else:
                self._set_rows(part, old, new)
        text = self.source
        ordered = sorted(enumerate(self.changes), key=lambda numbered: (*numbered[1][:2], numbered[0]))
        for _, (start, end, new_text) in reversed(ordered):
            text = text[:start] + new_text + text[end:]
        return text

    def kept(self) -> str:
        """The parts that no field shows, as they stand."""
        stretches = sorted(self._entry(*self.parts[name]) for name in KEPT if name in self.parts)
        texts = [self.source[start:end] for start, end in stretches]
        return "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)

    # Where things are
    def _start(self, at: int) -> int:
        return self.source.rfind("\n", 0, at) + 1

    def _end(self, at: int) -> int:
        """Just behind the line break of the line that `at` is in."""
        line_break = self.source.find("\n", at)
        return len(self.source) if line_break < 0 else line_break + 1

    def _last(self, node: pyyaml.Node) -> int:
        """The end of what the node says, without the blank lines and comments that the parser counts to a block."""
        if isinstance(node, pyyaml.CollectionNode) and not node.flow_style and node.value:
            child = node.value[-1]
            return self._last(child[1] if isinstance(child, tuple) else child)
        start, end = node.start_mark.index, node.end_mark.index
        return int(start + len(self.source[start:end].rstrip()))

    def _entry(self, first: pyyaml.Node, last: pyyaml.Node, lead: str = r"[ ]*") -> tuple[int, int]:
        """The whole lines of one entry, which must begin on a line of its own."""
        start = self._start(first.start_mark.index)
        if not re.fullmatch(lead, self.source[start : first.start_mark.index]):
            raise _CannotEdit
        return start, self._end(max(self._last(last), self._last(first)))

    def _insert(self, at: int, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if at and self.source[at - 1] != "\n":
            text = f"\n{text}"
        self.changes.append((at, at, text))

    # Parts
    def _add_part(self, part: str, value: Any) -> None:
        lines = part_lines(part, value)
        earlier = [name for name in PARTS[: PARTS.index(part)] if name in self.parts]
        if earlier:
            ends = [self._entry(*self.parts[name])[1] for name in earlier]
            self._insert(max(ends), lines)
        elif self.root is not None:
            first = min(key.start_mark.index for key, _ in self.parts.values())
            self._insert(self._start(first), lines)
        else:
            self._insert(len(self.source), lines)

    def _set_scalar_part(self, part: str, text: str) -> None:
        key, value = self.parts[part]
        if not text:
            self.changes.append((*self._entry(key, value), ""))
        else:
            self._replace(value, quoted(text))

    def _replace(self, node: pyyaml.Node, text: str) -> None:
        """A scalar or a flow collection by a scalar; one that is not there at all is put behind its colon."""
        start, end = node.start_mark.index, self._last(node)
        if isinstance(node, pyyaml.CollectionNode) and not node.flow_style:
            raise _CannotEdit
        self.changes.append((start, end, text if end > start or self.source[start - 1] == " " else f" {text}"))

    def _replace_by_block(self, node: pyyaml.Node, lines: Sequence[str]) -> None:
        if isinstance(node, pyyaml.CollectionNode) and not node.flow_style:
            raise _CannotEdit
        start, end = node.start_mark.index, self._last(node)
        while self.source[start - 1] == " ":
            start -= 1
        self.changes.append((start, max(start, end), "".join(f"\n{line}" for line in lines)))

    # Rows
    def _set_rows(self, part: str, old: Sequence[Any], new: Sequence[Any]) -> None:
        _, value = self.parts[part]
        row = ROWS[part]
        if isinstance(value, pyyaml.ScalarNode):  # nothing there yet
            self._replace_by_block(value, [text for item in new for text in row(item, "  ")])
        elif not isinstance(value, pyyaml.CollectionNode):
            raise _CannotEdit
        elif value.flow_style:
            lines = [text for item in new for text in row(item, "  ")]
            if lines:
                self._replace_by_block(value, lines)
            else:
                self._replace(value, "{}" if isinstance(value, pyyaml.MappingNode) else "[]")
        elif isinstance(value, pyyaml.MappingNode):
            self._set_mapping(part, value, {item.key: item for item in old}, {item.key: item for item in new})
        elif isinstance(value, pyyaml.SequenceNode):
            self._set_list(part, value, old, new)

    def _set_mapping(self, part: str, node: pyyaml.MappingNode, old: dict[str, Any], new: dict[str, Any]) -> None:
        for key, value in node.value:
            if key.value not in new:
                self.changes.append((*self._entry(key, value), ""))
            elif new[key.value] != old[key.value]:
                if part == "settings":
                    self._set_line(key, value, old[key.value], new[key.value])
                else:
                    self._replace(value, quoted(new[key.value].value))
        added = [item for name, item in new.items() if name not in old]
        if added:
            first, last = node.value[0][0], node.value[-1]
            indent = " " * (first.start_mark.index - self._start(first.start_mark.index))
            self._insert(self._entry(*last)[1], (text for item in added for text in ROWS[part](item, indent)))

    def _set_list(self, part: str, node: pyyaml.SequenceNode, old: Sequence[Any], new: Sequence[Any]) -> None:
        left = Counter(new)
        for item, child in zip(old, node.value, strict=True):
            if left[item]:
                left[item] -= 1
            else:
                self.changes.append((*self._entry(child, child, r"[ ]*- *"), ""))
        added = list(left.elements())
        if added:
            start, end = self._entry(node.value[-1], node.value[-1], r"[ ]*- *")
            indent = " " * (self.source.index("-", start) - start)
            self._insert(end, (text for item in added for text in ROWS[part](item, indent)))

    def _set_line(self, key: pyyaml.Node, value: pyyaml.Node, old: SettingLine, new: SettingLine) -> None:
        """One setting: only the fields that changed, where they stand apart."""
        if not isinstance(value, pyyaml.MappingNode) or value.flow_style:
            if needs_block(new):
                indent = " " * (key.start_mark.index - self._start(key.start_mark.index) + 2)
                self._replace_by_block(value, block(new, indent))
            else:
                self._replace(value, value_of(new))
            return
        fields = {name.value: (name, node) for name, node in value.value}
        if "value" not in fields:
            raise _CannotEdit
        first = value.value[0][0]
        indent = " " * (first.start_mark.index - self._start(first.start_mark.index))
        if (new.operator, new.value) != (old.operator, old.value):
            self._set_value(fields, old, new, indent)
        if new.why != old.why:
            if not new.why:
                self.changes.append((*self._entry(*fields["why"]), ""))
            elif "why" in fields:
                self._replace(fields["why"][1], quoted(new.why))
            else:
                self._insert(self._entry(*value.value[-1])[1], [f"{indent}why: {quoted(new.why)}"])

    def _set_value(
        self, fields: dict[str, tuple[pyyaml.Node, pyyaml.Node]], old: SettingLine, new: SettingLine, indent: str
    ) -> None:
        holds = needs_block(SettingLine(new.key, new.operator, new.value))
        if "operator" in fields:
            if new.operator != old.operator:
                self._replace(fields["operator"][1], quoted(new.operator))
            if new.value != old.value:
                self._replace(fields["value"][1], scalar(new.value))
        elif holds:  # the operator must stand by itself
            self._insert(self._entry(*fields["value"])[0], [f"{indent}operator: {quoted(new.operator)}"])
            self._replace(fields["value"][1], scalar(new.value))
        else:
            self._replace(fields["value"][1], value_of(new))
