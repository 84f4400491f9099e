"""Verdict of one run of a check: what its program's output was understood to say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST = 4 * 1024 * 1024
"""Bytes of output that are read. The longest real one, of dcgmi diag on 16 GPUs with all its notes, is below 1 MiB."""
MOST_NOTES = 20
LONGEST_NOTE = 300


class NotUnderstood(Exception):
    """The output is not what this parser knows. `str()` is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`is_passed` is the program's own word; measures are for comparing nodes."""

    is_passed: bool
    summary: str
    measures: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """The program's own words about what failed."""
    version: str = ""
    """Of the program, where it says it."""
    covers: frozenset[str] = frozenset()
    """Targets that the output tells of."""


def note(text: object) -> str:
    """Return a text of the output as one bounded line without control characters."""
    printable = "".join(c if c.isprintable() else " " for c in str(text)[: 4 * LONGEST_NOTE])
    return " ".join(printable.split())[:LONGEST_NOTE]


def json_object(text: str) -> dict[str, Any]:
    """Return the one JSON object that the output consists of, but for plain lines before and after it.

    Programs print warnings around their JSON. Raises NotUnderstood.
    """
    starts = [0] if text.startswith("{") else []
    if (at := text.find("\n{")) >= 0 and not starts:
        starts.append(at + 1)
    if not starts:
        raise NotUnderstood("The output contains no JSON object.")
    try:
        parsed, end = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_once).raw_decode(text, starts[0])
    except (ValueError, RecursionError) as error:
        raise NotUnderstood("The output's JSON is cut off or malformed.") from error
    if "{" in text[end:]:
        raise NotUnderstood("The output contains more than one JSON object.")
    if not isinstance(parsed, dict):
        raise NotUnderstood("The output contains no JSON object.")
    return parsed


def number(value: object, what: str) -> float:
    """Return a finite number that is not negative. Raises NotUnderstood."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotUnderstood(f"{what} is no number.")
    try:
        out = float(value)
    except OverflowError as error:
        raise NotUnderstood(f"{what} is no number that can be.") from error
    if not math.isfinite(out) or out < 0:
        raise NotUnderstood(f"{what} is no number that can be.")
    return out


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that has a key twice: which of the two counts would be a guess."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key is there twice")
    return out
