"""The components of a profile as a form's fields, and back: only the entry that changed is written again.

The values are the text of the YAML itself, moved to the left: their comments and their order are part of it, and stay.
What is written is read again and compared; comments that a changed entry held elsewhere are named by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml as pyyaml

from common import yaml
from common.errors import Invalid
from profiles.content.cluster import canonical
from profiles.document.document import dump
from profiles.editor.yaml_format import quoted

_Loader = getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader)
NONE = "none"


@dataclass(frozen=True, slots=True)
class ComponentFields:
    name: str
    version: str = ""
    presets: str = ""
    """Names in their order, with commas or blanks between; NONE: not even those that are inherited."""
    values: str = ""
    """YAML."""
    why: str = ""
    is_gone: bool = False
    """`remove: true`."""

    @property
    def preset_names(self) -> list[str] | None:
        """Return the names of the presets; None: the field says nothing of them."""
        text = self.presets.strip(" ,\n\t")
        return None if not text else [] if text == NONE else re.split(r"[\s,]+", text)


@dataclass(frozen=True, slots=True)
class _Entry:
    start: int
    end: int
    indent: str
    fields: ComponentFields


class Unshowable(Exception):
    """The text has its components in a shape that no field can show."""


def read(source: str) -> tuple[ComponentFields, ...]:
    """Raises Unshowable, also for what is not YAML at all."""
    return tuple(entry.fields for entry in _entries(source))


def write(source: str, rows: Sequence[ComponentFields]) -> str:
    """`source` with these components. Raises Invalid, naming component and field, where that cannot be."""
    _refuse_twice(rows)
    meant = {row.name: _meant(row) for row in rows}
    try:
        entries = _entries(source)
    except Unshowable as error:
        raise Invalid(
            "The components of this text can be edited as YAML only.", fields={"components": [str(error)]}
        ) from error
    before = {entry.fields.name: entry for entry in entries}
    if [*before] == [*meant] and all(before[row.name].fields == row for row in rows):
        return source
    is_flow = any(not entry.indent for entry in entries)
    text = _part_rewritten(source, meant) if is_flow else _edited(source, entries, rows)
    _hold(source, text, meant)
    return text


def _refuse_twice(rows: Sequence[ComponentFields]) -> None:
    names = [row.name for row in rows]
    for name in names:
        if not name or names.count(name) > 1:
            message = "is given twice; keep one" if name else "has no name"
            raise Invalid(f"A component {message}.", fields={f"components.{name or '?'}": [f"{name} {message}."]})


def _meant(row: ComponentFields) -> dict[str, Any]:
    """The entry as plain data. Raises Invalid."""
    out: dict[str, Any] = {"remove": True} if row.is_gone else {}
    if row.version:
        out["version"] = row.version
    if row.preset_names is not None:
        out["presets"] = row.preset_names
    if row.values.strip():
        field = f"components.{row.name}.values"
        try:
            out["values"] = yaml.load(row.values).data
        except yaml.BadYaml as error:
            raise Invalid(f"{row.name}: values: {error}", fields={field: [str(error)]}) from error
        if out["values"] is not None and not isinstance(out["values"], dict):
            message = "line 1: must be a mapping, as in the chart's values.yaml"
            raise Invalid(f"{row.name}: values: {message}", fields={field: [message]})
    if row.why:
        out["why"] = row.why
    return out


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _entries(source: str) -> list[_Entry]:
    try:
        data = yaml.load(source).data
        root = _root(source)
    except (yaml.BadYaml, pyyaml.YAMLError) as error:
        raise Unshowable("The text is not YAML.") from error
    components = (data or {}).get("components") if isinstance(data, dict | None) else None
    if not components:
        return []
    part = _part(root)
    if not isinstance(components, dict) or part is None:
        raise Unshowable("components is no mapping.")
    is_flow = bool(part[1].flow_style)
    return [_entry(source, key, node, components[key.value], is_flow=is_flow) for key, node in part[1].value]


def _root(source: str) -> Any:
    loader = _Loader(source)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _part(root: Any) -> tuple[Any, Any] | None:
    if not isinstance(root, pyyaml.MappingNode):
        return None
    return next(((key, node) for key, node in root.value if key.value == "components"), None)


def _entry(source: str, key: Any, node: Any, raw: Any, *, is_flow: bool) -> _Entry:
    raw = {} if raw is None else raw
    if not isinstance(raw, dict) or raw.keys() - {"version", "presets", "values", "why", "remove"}:
        raise Unshowable(f"{key.value} holds something that no field shows.")
    presets = raw["presets"] if raw.get("presets") is not None else None
    if not isinstance(presets, list | None) or not all(isinstance(n, str) and n.isprintable() for n in presets or ()):
        raise Unshowable(f"The presets of {key.value} are no list of names.")
    for name in ("version", "why"):
        text = raw.get(name)
        if text is not None and not (isinstance(text, str) and text.isprintable()):
            raise Unshowable(f"{name} of {key.value} is no text of one line.")
    if not (raw.get("remove") is None or raw["remove"] is True):
        raise Unshowable(f"remove of {key.value} is not true.")
    start = source.rfind("\n", 0, key.start_mark.index) + 1
    indent = source[start : key.start_mark.index]
    is_block = not is_flow and bool(indent) and not indent.strip(" ")
    fields = ComponentFields(
        name=key.value,
        version=raw.get("version") or "",
        presets=NONE if presets == [] else ", ".join(presets or ()),
        values=_values_text(source, node, raw.get("values")),
        why=raw.get("why") or "",
        is_gone=raw.get("remove") is True,
    )
    return _Entry(start, _end(source, max(_last(source, node), key.end_mark.index)), indent if is_block else "", fields)


def _values_text(source: str, node: Any, values: Any) -> str:
    """Return the text of the values, moved to the left, with the comments above and within it.

    Written again from the data where it is in braces.
    """
    if not values:
        return ""
    pairs = {key.value: (key, value) for key, value in node.value} if isinstance(node, pyyaml.MappingNode) else {}
    key, value = pairs["values"]
    if node.flow_style or not isinstance(value, pyyaml.MappingNode) or value.flow_style:
        return dump(values)
    start = source.find("\n", key.end_mark.index) + 1
    lines = source[start : _end(source, _last(source, value))].rstrip("\n").split("\n")
    first = value.value[0][0]
    indent = first.start_mark.column
    moved = [line[indent:] if not line[:indent].strip() else line.lstrip() for line in lines]
    text = "\n".join(moved) + "\n"
    try:
        is_same = canonical(yaml.load(text).data) == canonical(values)
    except (yaml.BadYaml, ValueError):
        is_same = False
    return text if is_same else dump(values)


def _last(source: str, node: Any) -> int:
    """The end of what the node says, without the blank lines and comments that the parser counts to a block."""
    if isinstance(node, pyyaml.CollectionNode) and not node.flow_style and node.value:
        child = node.value[-1]
        return _last(source, child[1] if isinstance(child, tuple) else child)
    start, end = node.start_mark.index, node.end_mark.index
    return int(start + len(source[start:end].rstrip()))


def _end(source: str, at: int) -> int:
    line_break = source.find("\n", at)
    return len(source) if line_break < 0 else line_break + 1


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _edited(source: str, entries: Sequence[_Entry], rows: Sequence[ComponentFields]) -> str:
    """Changed entries replaced, others left character by character, new ones behind the last."""
    now = {row.name: row for row in rows}
    known = {entry.fields.name for entry in entries}
    added = [row for row in rows if row.name not in known]
    if entries and not (now.keys() & known) and not added:
        return _without_part(source)
    indent = entries[0].indent if entries else "  "
    new = "".join(_block(row, indent) for row in added)
    if not entries:
        return _with_part(source, new)
    text, at = "", 0
    for entry in entries:
        here = now.get(entry.fields.name)
        text += source[at : entry.start]
        if here == entry.fields:
            text += source[entry.start : entry.end]
        elif here is not None:
            text += _block(here, entry.indent)
        at = entry.end
    if text and not text.endswith("\n"):
        text += "\n"
    return text + new + source[at:]


def _block(row: ComponentFields, indent: str) -> str:
    inner = indent + "  "
    lines = [f"{inner}remove: true"] if row.is_gone else []
    if row.version:
        lines.append(f"{inner}version: {quoted(row.version)}")
    if row.preset_names is not None:
        lines.append(f"{inner}presets: [{', '.join(quoted(name) for name in row.preset_names)}]")
    if row.why:
        lines.append(f"{inner}why: {quoted(row.why)}")
    if row.values.strip():
        lines.append(f"{inner}values:")
        lines += [f"{inner}  {line}" if line.strip() else "" for line in row.values.rstrip().split("\n")]
    head = f"{indent}{quoted(row.name)}:"
    return "".join(f"{line}\n" for line in ([head, *lines] if lines else [f"{head} {{}}"]))


def _span(source: str) -> tuple[int, int] | None:
    """The whole part, from its name to its last line."""
    if (part := _part(_root(source))) is None:
        return None
    start = source.rfind("\n", 0, part[0].start_mark.index) + 1
    return start, _end(source, max(_last(source, part[1]), part[0].end_mark.index))


def _without_part(source: str) -> str:
    span = _span(source)
    return source if span is None else source[: span[0]] + source[span[1] :]


def _with_part(source: str, blocks: str) -> str:
    text = _without_part(source)
    if text and not text.endswith("\n"):
        text += "\n"
    return f"{text}components:\n{blocks}" if blocks else text


def _part_rewritten(source: str, components: Mapping[str, Any]) -> str:
    """Write the part by itself, where entries are in braces; its comments are lost."""
    text = _without_part(source)
    if text and not text.endswith("\n"):
        text += "\n"
    return text + (dump({"components": dict(components)}) if components else "")


def _hold(source: str, text: str, components: Mapping[str, Any]) -> None:
    """Check that the written text has the requested components, and everything else as before. Raises Invalid."""
    try:
        before, after = yaml.load(source).data or {}, yaml.load(text).data or {}
        got = after.pop("components", None) or {}
        before.pop("components", None)
        is_right = canonical(got) == canonical({name: component or {} for name, component in components.items()})
        if is_right and canonical(before) == canonical(after):
            return
    except (yaml.BadYaml, ValueError):
        pass
    message = "The form cannot write this into the text; edit it as YAML."
    raise Invalid(message, fields={"components": [message]})
