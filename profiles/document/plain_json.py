"""Plain JSON from people: what both databases, Helm and Kubernetes read the same way, bounded in size and depth."""

from __future__ import annotations

import math
import re
from typing import Any

from common import yaml
from profiles.content.cluster import canonical

MAX_DEPTH = 16
MAX_WHOLE = 2**53 - 1
"""Helm and many a controller read numbers as 64-bit floats; beyond this they would change on the way."""
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


class Unfit(ValueError):
    """`path` is where, `code` what kind of mistake."""

    def __init__(self, path: yaml.Path, code: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.code = code


def checked(value: Any, path: yaml.Path, *, most: int, depth: int = MAX_DEPTH) -> Any:
    """The value with its numbers in their one form: 1.0 is 1. Raises Unfit; `most` bounds its JSON in characters."""
    out = _checked_value(value, path, depth)
    size = len(canonical(out))
    if size > most:
        raise Unfit(path, "too-long", f"is {size:,} characters long as JSON; at most {most:,} are kept")
    return out


def _checked_value(value: Any, path: yaml.Path, depth: int) -> Any:
    if isinstance(value, dict | list):
        if depth <= 0:
            raise Unfit(path, "too-deep", f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, list):
            return [_checked_value(item, (*path, index), depth - 1) for index, item in enumerate(value)]
        for key in value:
            _text(key, (*path, key))
        return {key: _checked_value(item, (*path, key), depth - 1) for key, item in value.items()}
    if isinstance(value, str):
        _text(value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, path)
    return value


def _text(text: str, path: yaml.Path) -> None:
    if match := _UNSEEN.search(text):
        raise Unfit(path, "bad-text", f"contains the character U+{ord(match[0]):04X}, which cannot be kept")


def _number(value: float, path: yaml.Path) -> float:
    """Databases and Helm write 1.0 and 1e3 as 1 and 1000, so that is what they are from the start."""
    if not math.isfinite(value) or abs(value) > MAX_WHOLE:
        raise Unfit(path, "bad-value", "is too large a number; put it in quotes if it is text")
    return int(value) if value == int(value) else value
