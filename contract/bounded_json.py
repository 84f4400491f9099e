"""Fields of a JSON object, read within bounds of type, length and number: what is outside them is Malformed."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, TypeVar

E = TypeVar("E", bound=enum.StrEnum)

LONGEST_WORD = 128
"""Characters of a member of an enumeration."""


class Malformed(ValueError):
    """A NodeTuning field is absent, of the wrong type or beyond its bound. The message names the field."""


def check_object(raw: Any, name: str) -> None:
    if not isinstance(raw, Mapping):
        raise Malformed(f"{name}: must be an object")


def bounded(value: Any, name: str, limit: int) -> str:
    if not isinstance(value, str) or len(value) > limit:
        raise Malformed(f"{name}: must be text of at most {limit} characters")
    return value


def text(raw: Mapping[str, Any], name: str, limit: int, default: str | None = None) -> str:
    if not isinstance(raw, Mapping):
        raise Malformed(f"{name}: its parent must be an object")
    value = raw.get(name)
    if value is None:
        if default is None:
            raise Malformed(f"{name}: is required")
        return default
    return bounded(value, name, limit)


def optional_text(raw: Mapping[str, Any], name: str, limit: int) -> str | None:
    value = raw.get(name)
    return None if value is None else bounded(value, name, limit)


def whole_number(raw: Mapping[str, Any], name: str, default: int) -> int:
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise Malformed(f"{name}: must be a whole number of 0 or more")
    return value


def list_of_objects(raw: Mapping[str, Any], name: str, limit: int) -> list[Mapping[str, Any]]:
    value = raw.get(name) or []
    if not isinstance(value, list) or len(value) > limit or not all(isinstance(v, Mapping) for v in value):
        raise Malformed(f"{name}: must be a list of at most {limit} objects")
    return value


def lines(raw: Mapping[str, Any], name: str, limit: int, count: int, each: int) -> tuple[str, ...]:
    """A text of one entry a line; empty text is no entry."""
    entries_of_text = text(raw, name, limit, "").split("\n")
    if entries_of_text == [""]:
        return ()
    if len(entries_of_text) > count:
        raise Malformed(f"{name}: must be at most {count} lines")
    return tuple(bounded(line, name, each) for line in entries_of_text)


def entry_lines(of: Mapping[str, str]) -> str:
    """A JSON object, an entry a line, so that it can be read in `kubectl get -o yaml`; empty text without entries."""
    return json.dumps(dict(of), indent=0) if of else ""


def entries(raw: Mapping[str, Any], name: str, *, limit: int, count: int, key: int, value: int) -> dict[str, str]:
    """Read texts by key, written by `entry_lines`: at most `count` in `limit` characters; key and value are bounds."""
    try:
        decoded = json.loads(text(raw, name, limit, "") or "{}")
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{name}: must be a JSON object") from error
    if not isinstance(decoded, dict) or len(decoded) > count:
        raise Malformed(f"{name}: must be a JSON object of at most {count} entries")
    return {bounded(name_of_entry, name, key): bounded(each, name, value) for name_of_entry, each in decoded.items()}


def one_of(raw: Mapping[str, Any], name: str, of: type[E], default: E | None = None) -> E:
    value = text(raw, name, LONGEST_WORD, default)
    try:
        return of(value)
    except ValueError as error:
        raise Malformed(f"{name}: must be one of {', '.join(of)}") from error
