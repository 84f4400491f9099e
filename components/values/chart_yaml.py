"""YAML of charts, read as helm and Kubernetes read it, for any chart: bounded in size, depth and count.

Unlike `common.yaml`, which is for people's own documents: charts use anchors, merge keys and the words that YAML 1.1
takes for booleans, and what helm applies is what they mean to go-yaml; the tests ask helm itself. One pass over the
parser's events with a stack of our own: neither depth nor aliases of aliases cost more than the limits say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 100
MAX_VALUES = 1_000_000
"""With every alias counted as its value. kube-prometheus-stack with its CRDs has 300,000."""
MAX_NUMBER = 64

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_INT = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO]?[0-7]*|0[bB][01]+|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_STARTS = frozenset("0123456789+-.")
_LARGEST = 1 << 64


class BadChartYaml(ValueError):
    """Invalid YAML, or more of it than is accepted. `str()` begins with the line."""


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    value: Any
    anchor: str | None
    began: int
    """Values counted before it, so that its own are known when it ends."""
    key: Any = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)


def load(text: str | bytes) -> Any:
    """The only document, None when there is none. Raises BadChartYaml."""
    loaded = list(documents(text))
    if len(loaded) > 1:
        raise BadChartYaml("line 1: only one document is accepted")
    return loaded[0] if loaded else None


def documents(text: str | bytes) -> Iterator[Any]:
    """Each document that is not empty. Raises BadChartYaml."""
    try:
        loader = _Loader(text)
        try:
            yield from _Builder(loader).documents()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadChartYaml(f"line {mark.line + 1 if mark else 1}: {error.problem or 'is not YAML'}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadChartYaml("line 1: is not YAML, or not UTF-8 text") from error


class _Builder:
    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.count = 0
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.root: Any = None

    def documents(self) -> Iterator[Any]:
        """Scalars come first and are counted in place: three of four events are."""
        next_event = self.loader.get_event
        while (kind := type(event := next_event())) is not yaml.StreamEndEvent:
            if kind is yaml.ScalarEvent:
                self.count += 1
                if self.count > MAX_VALUES:
                    self._count(0, event)
                is_plain = event.implicit[0]
                value = _plain_scalar(event.value) if is_plain else self._tagged(event)
                if event.anchor:
                    self.anchors[event.anchor] = (value, 1)
                self._put(value, event, is_merge=is_plain and event.value == "<<")
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._begin(event)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end(event)
            elif kind is yaml.AliasEvent:
                if event.anchor not in self.anchors:
                    raise BadChartYaml(f"line {_line(event)}: *{event.anchor} refers to nothing")
                value, size = self.anchors[event.anchor]
                self._count(size, event)
                self._put(value, event)
            elif kind is yaml.DocumentStartEvent:
                self.root, self.anchors = None, {}
            elif kind is yaml.DocumentEndEvent and self.root is not None:
                yield self.root

    def _begin(self, event: Any) -> None:
        self._count(1, event)
        if len(self.stack) >= MAX_DEPTH:
            raise BadChartYaml(f"line {_line(event)}: is nested deeper than {MAX_DEPTH} levels")
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.stack.append(_Open(value, event.anchor, self.count - 1))

    def _end(self, event: Any) -> None:
        done = self.stack.pop()
        for mapping in done.merged:
            for key, value in mapping.items():
                done.value.setdefault(key, value)
        if done.anchor:
            self.anchors[done.anchor] = (done.value, self.count - done.began)
        self._put(done.value, event)

    def _put(self, value: Any, event: Any, *, is_merge: bool = False) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if top.has_key:
            if top.key is _MERGE:
                top.merged += _mappings(value, event)
            else:
                top.value[top.key] = value
            top.has_key = False
        elif type(top.value) is list:
            top.value.append(value)
        else:
            top.key, top.has_key = _MERGE if is_merge else _key(value, event), True

    def _count(self, size: int, event: Any) -> None:
        self.count += size
        if self.count > MAX_VALUES:
            raise BadChartYaml(f"line {_line(event)}: has more than {MAX_VALUES:,} values, aliases written out")

    def _tagged(self, event: Any) -> Any:
        tag = event.tag
        if not tag or tag in ("!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:binary"):
            return event.value
        return _plain_scalar(event.value)


_MERGE = object()


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _key(value: Any, event: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, dict | list):
        raise BadChartYaml(f"line {_line(event)}: a key is a collection")
    if value is None:
        raise BadChartYaml(f"line {_line(event)}: a key is null")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _mappings(value: Any, event: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in items):
        raise BadChartYaml(f"line {_line(event)}: << wants a mapping")
    return items


def _plain_scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS:
        return text
    digits = text.replace("_", "")
    if len(digits) > MAX_NUMBER:
        return text
    if _INT.fullmatch(digits):
        number = _integer(digits)
        return number if -_LARGEST < number < _LARGEST else float(number)
    return float(digits) if _FLOAT.fullmatch(digits) else text


def _integer(digits: str) -> int:
    """Base by prefix as Go reads it: a leading 0 is octal."""
    sign, body = (-1, digits[1:]) if digits[0] == "-" else (1, digits.lstrip("+"))
    lower = body.lower()
    if lower.startswith(("0x", "0o", "0b")):
        return sign * int(lower, 0)
    return sign * int(lower, 8 if len(lower) > 1 and lower[0] == "0" else 10)
