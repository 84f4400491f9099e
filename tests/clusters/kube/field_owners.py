"""Owners of an object's fields, for tests that ask which manager an apply left a field to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters import objects


def holders(raw: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Managers that own the field at `path`, `("spec", "weight")`, or anything in it."""
    found = set()
    for entry in objects.meta(raw).get("managedFields") or ():
        below: Any = entry.get("fieldsV1") or {}
        for name in path:
            below = below.get(f"f:{name}") if isinstance(below, Mapping) else None
        if below is not None:
            found.add(str(entry.get("manager", "")))
    return sorted(found)
