"""Which fields of an object one manager owns, by the record that the API server keeps of server-side apply.

Pure functions over JSON dicts. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clusters import objects
from contract import names


def fields(raw: Mapping[str, Any], manager: str = names.FIELD_MANAGER) -> dict[str, Any]:
    """Of the object, only what `manager` last applied: nothing where it applied nothing.

    What somebody else owns, such as a label of theirs or a default, is left out; so comparing two of these tells
    whether what was applied still stands, and nothing else.
    """
    out: dict[str, Any] = {}
    for entry in objects.meta(raw).get("managedFields") or ():
        is_ours = entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        if is_ours and isinstance(owned := entry.get("fieldsV1"), Mapping):
            picked = _picked(raw, owned)
            out = picked if isinstance(picked, dict) else out
    return out


def _picked(value: Any, owned: Mapping[str, Any]) -> Any:
    """`f:` names a field, `k:` an item by its keys, `v:` one by its value; a leaf is owned as a whole."""
    inside = {key: below for key, below in owned.items() if key != "."}
    if not inside:
        return value
    if isinstance(value, Mapping):
        wanted = {key[2:]: below for key, below in inside.items() if key.startswith("f:")}
        return {name: _picked(value[name], below) for name, below in sorted(wanted.items()) if name in value}
    if isinstance(value, list):
        return [_picked(item, below) for key, below in inside.items() for item in value if is_item(item, key)]
    return value


def is_item(item: Any, key: str) -> bool:
    """Whether `k:{…}` or `v:…` names this item of a list."""
    try:
        wanted = json.loads(key[2:])
    except ValueError:
        return False
    if key.startswith("k:"):
        return isinstance(item, Mapping) and all(item.get(name) == value for name, value in wanted.items())
    return key.startswith("v:") and bool(item == wanted)


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
