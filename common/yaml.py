"""YAML from people, read safely: bounded size, depth and count, no aliases, no tags, and a line number for every value.

Scalars follow YAML 1.2's core schema, so `no`, `on`, `12:30` and `2026-01-01` stay text: a kernel setting may have such
a value, and YAML 1.1 would silently make it a boolean, a number of seconds or a date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from common.errors import Invalid

Path = tuple[str | int, ...]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 50_000
"""256 KiB of `[[],[],…` would be 80,000 objects; nothing this product reads has a tenth of this bound."""
MAX_NUMBER = 64
"""Characters of a plain number: converting digits takes quadratic time."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class BadYaml(Invalid):
    """The text is not YAML, or more of it than is accepted. `line` counts from 1; `field` is a dotted path or empty."""

    def __init__(self, reason: str, *, line: int = 1, field: str = "") -> None:
        message = f"line {line}: {field + ': ' if field else ''}{reason}"
        super().__init__(message, fields={field: [message]} if field else None)
        self.reason = reason
        self.line = line
        self.field = field


@dataclass(frozen=True, slots=True)
class YamlDocument:
    data: Any
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, *path: str | int) -> int:
        """Line of the key or item at `path`, else of its nearest ancestor, counted from 1."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def dotted(path: Path) -> str:
    """`("users", 0, "user", "exec")` as people write it: users[0].user.exec"""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def load(text: str | bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> YamlDocument:
    """Read one document. Raises BadYaml with line and field, and nothing else for any text."""
    source = _decoded(text, max_bytes)
    try:
        _measure(source, max_depth)
        loader = _Loader(source)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # The parser looks past the last line when something is not closed; there is nothing to be seen there.
        last = source.rstrip().count("\n") + 1
        raise BadYaml(_in_words(error.problem), line=min(mark.line + 1, last) if mark else 1) from error
    except yaml.reader.ReaderError as error:
        where = source[: error.position].count("\n") + 1 if isinstance(error.position, int) else 1
        raise BadYaml("has a character that YAML does not permit", line=where) from error
    except yaml.YAMLError as error:
        raise BadYaml("is not YAML") from error
    if root is None:
        return YamlDocument(None)
    lines: dict[Path, int] = {}
    return YamlDocument(_built(root, (), lines), lines)


_WORDS = (
    ("expected ',' or", "a bracket or brace is not closed, or a comma is missing"),
    ("expected node content", "a bracket or brace is not closed, or a value is missing"),
    ("mapping values are not allowed", "there is one ': ' too many on this line; put a value that holds one in quotes"),
    ("cannot start any token", "a tab cannot indent, and a value that begins with @, ` or % wants quotes"),
    ("could not find expected ':'", "the ':' behind a name is missing"),
    ("expected key", "this line is indented differently from those it belongs to"),
    ("unexpected end of stream", "a quote is not closed"),
    ("expected '<document start>'", "a value continues in another form than it began; put it in quotes"),
    ("block collection", "this line is indented differently from those it belongs to"),
)
"""(a part of the parser's own words, what people should do about it)"""


def _in_words(problem: str | None) -> str:
    hint = next((words for part, words in _WORDS if part in (problem or "")), "")
    return f"{hint} ({problem})" if hint else problem or "is not YAML"


def _decoded(text: str | bytes, max_bytes: int) -> str:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > max_bytes:
        raise BadYaml(f"is {len(raw):,} bytes long; at most {max_bytes:,} are read")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadYaml("is not UTF-8 text", line=raw[: error.start].count(b"\n") + 1) from error


def _measure(source: str, max_depth: int) -> None:
    """Walk the parser's events, which need no recursion, before anything is built from them."""
    depth = values = documents = 0
    loader = _Loader(source)
    try:
        while loader.check_event():
            event = loader.get_event()
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise BadYaml("anchors and aliases (& and *) are not accepted; write the value out", line=line)
            if getattr(event, "tag", None):
                raise BadYaml(f"the tag {event.tag} is not accepted; quotes make text", line=line)
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise BadYaml("only one document is accepted", line=line)
            values += isinstance(event, yaml.NodeEvent)
            if values > MAX_VALUES:
                raise BadYaml(f"has more than {MAX_VALUES:,} values", line=line)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > max_depth:
                    raise BadYaml(f"is nested deeper than {max_depth} levels", line=line)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    finally:
        loader.dispose()


def _built(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, yaml.SequenceNode):
        return [_built(item, (*path, index), lines) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines)
    assert isinstance(node, yaml.ScalarNode)  # a fourth kind does not exist
    try:
        return _scalar(node)
    except ValueError as error:
        raise BadYaml(str(error), line=line, field=dotted(path)) from error


def _mapping(node: yaml.MappingNode, path: Path, lines: dict[Path, int]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise BadYaml("a key must be text", line=line, field=dotted(path))
        key = str(key_node.value)
        if key in out:
            raise BadYaml(f"the key {key!r} is given twice", line=line, field=dotted(path))
        lines[(*path, key)] = line
        out[key] = _built(value_node, (*path, key), lines)
    return out


def _scalar(node: yaml.ScalarNode) -> Any:
    value = str(node.value)
    if node.style in ("'", '"', "|", ">"):
        return value
    if value in _NULL:
        return None
    if value in _BOOL:
        return _BOOL[value]
    is_int, is_based = _INT.fullmatch(value), _BASED.fullmatch(value)
    if is_int or is_based or _FLOAT.fullmatch(value):
        if len(value) > MAX_NUMBER:
            raise ValueError(f"a number of more than {MAX_NUMBER} characters; put it in quotes if it is text")
        return int(value) if is_int else int(value, 0) if is_based else float(value)
    return value
