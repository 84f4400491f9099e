"""Places in values: a tuple of keys, and how people write it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Path = tuple[str, ...]


def at(values: Mapping[str, Any], path: Path) -> Any:
    for step in path:
        values = values[step]
    return values


def dotted(path: Sequence[str]) -> str:
    """`a.b`, and `nodeSelector["kubernetes.io/os"]` where a key has a dot of its own."""
    out = ""
    for part in map(str, path):
        plain = bool(part) and not re.search(r"[.\[\]\"\s]", part)
        out += (f".{part}" if out else part) if plain else f'["{part}"]'
    return out
