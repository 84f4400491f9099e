"""JSON from clients, refused where it could not be stored or would only hurt. Raises ParseError and Invalid."""

from __future__ import annotations

import json
import math
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from common.errors import Invalid

MAX_DEPTH = 64
MAX_INTEGER = 2**63 - 1
"""What both databases can store; a larger number would fail in the driver."""


class StrictJsonParser(JSONParser):
    """JSON that both databases can store: no NUL, no lone surrogates, no infinities, no 20-digit numbers, no abyss.

    A name given twice in one object is refused: readers differ in which of the two counts (RFC 8259, section 4).
    """

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        try:
            data = json.loads(stream.read(), object_pairs_hook=_once, parse_constant=_no_constant)
            _check_storable(data, "", 1)
        except RecursionError:
            raise ParseError(f"The JSON is nested deeper than {MAX_DEPTH} levels.") from None
        except ValueError as error:  # UnicodeDecodeError is one, too
            raise ParseError(f"JSON parse error - {error}") from error
        return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises Invalid."""
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})[:_NAMED] if len(names) <= _COUNTED else [""]
        shown = {name.encode("utf-8", "replace").decode().replace("\x00", "\ufffd"): _TWICE for name in twice}
        raise Invalid("A name is given twice in one object.", fields=shown)
    return out


def _no_constant(name: str) -> Any:
    """NaN and Infinity, which Python would read."""
    raise ValueError(f"Out of range float values are not JSON compliant: {name}")


_NAMED, _COUNTED = 5, 1000
"""At most so many doubled names are listed, of objects that are small enough to count them in no time."""
_TWICE = ["Given twice in one object: keep one."]


def _check_storable(value: Any, path: str, depth: int) -> None:
    """Raises Invalid, naming the field's path (`settings[3].value`)."""
    if depth > MAX_DEPTH:
        raise ParseError(f"The JSON is nested deeper than {MAX_DEPTH} levels.")
    problem = ""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_storable(name, path, depth)
            _check_storable(item, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_storable(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, str):
        if "\x00" in value:
            problem = "The character NUL is not accepted."
        elif any("\ud800" <= character <= "\udfff" for character in value):
            problem = "This is not valid Unicode: half of a surrogate pair."
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        problem = f"Whole numbers lie between -{MAX_INTEGER} and {MAX_INTEGER}."
    elif isinstance(value, float) and not math.isfinite(value):
        problem = "This number is too large."
    if problem:
        where = path.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
        raise Invalid("A value cannot be stored.", fields={where: [problem]})
