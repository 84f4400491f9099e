"""Conditions on values and objects: something equals something at a dotted path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Clause:
    """True where the values have this at that path."""

    path: str
    equals: Any

    def holds(self, values: Mapping[str, Any]) -> bool:
        return bool(look_up(values, self.path) == self.equals)

    def __str__(self) -> str:
        shown = str(self.equals).lower() if isinstance(self.equals, bool) else self.equals
        return f"{self.path} = {shown}"


def look_up(values: Any, path: str) -> Any:
    """Return the value at a dotted path; None where there is none."""
    for part in path.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return None
        values = values[part]
    return values
