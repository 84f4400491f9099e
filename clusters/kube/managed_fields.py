"""Field ownership: the fields of an object that one manager owns, by the API server's record of server-side apply.

Pure functions over JSON dicts. Standard library only. A Path is a field as that record names it: `f:spec`, `f:hard`,
`f:pods`; `k:{...}` and `v:...` are items of a list.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusters import objects
from contract import names

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """One field, and one manager that holds it."""

    path: Path
    manager: str
    at: str = ""
    """When the manager last wrote anything of the object: 2026-11-22T02:10:00Z."""
    subresource: str = ""


def fields(
    raw: Mapping[str, Any], manager: str = names.FIELD_MANAGER, *, more: Collection[Path] = ()
) -> dict[str, Any]:
    """Return the part of the object that `manager` last applied, empty if none. `more`: with these fields.

    What another party owns, such as a label of theirs or a default, is left out; so comparing two of these tells
    whether what was applied is still in effect, and nothing else.
    """
    owned = {path for entry in _entries(raw) if _is(entry, manager) for path in _leaves(entry.get("fieldsV1"))}
    picked = _picked(raw, _tree({*owned, *more}))
    return picked if (owned or more) and isinstance(picked, dict) else {}


def others(raw: Mapping[str, Any], manager: str = names.FIELD_MANAGER) -> frozenset[Hold]:
    """Return what all field managers but `manager` own of it."""
    return frozenset(
        Hold(path, str(entry.get("manager") or ""), str(entry.get("time") or ""), str(entry.get("subresource") or ""))
        for entry in _entries(raw)
        if not _is(entry, manager)
        for path in _leaves(entry.get("fieldsV1"))
    )


def value(raw: Any, path: Path) -> Any:
    """Return the value at this path. Raises LookupError if there is none."""
    for step in path:
        if step.startswith("f:") and isinstance(raw, Mapping):
            raw = raw[step[2:]]
        else:
            raw = next((item for item in raw if is_item(item, step)), None) if isinstance(raw, list) else None
            if raw is None:
                raise LookupError(step)
    return raw


def without(raw: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """The object without these fields, and without what is empty for it. Shares what it does not change."""
    out: Any = dict(raw)
    for path in paths:
        out = _cut(out, path)
    return out or {}


def _cut(raw: Any, path: Path) -> Any:
    """None where nothing is left."""
    if not path:
        return None
    step, rest = path[0], path[1:]
    if isinstance(raw, Mapping) and step.startswith("f:") and step[2:] in raw:
        cut = {**raw, step[2:]: _cut(raw[step[2:]], rest)}
        return {name: inside for name, inside in cut.items() if inside is not None} or None
    if isinstance(raw, list):
        items = (_cut(item, rest) if is_item(item, step) else item for item in raw)
        return [item for item in items if item is not None] or None
    return raw


def _entries(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [entry for entry in objects.meta(raw).get("managedFields") or () if isinstance(entry, Mapping)]


def _is(entry: Mapping[str, Any], manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def _leaves(owned: Any, above: Path = ()) -> Iterator[Path]:
    for step, below in (owned if isinstance(owned, Mapping) else {}).items():
        if isinstance(below, Mapping) and any(name != "." for name in below):
            yield from _leaves(below, (*above, step))
        elif step != ".":
            yield (*above, step)


def _tree(paths: Iterable[Path]) -> dict[str, Any]:
    """Nest paths as the record does; inverse of `_leaves`."""
    out: dict[str, Any] = {}
    for path in sorted(paths):
        inside = out
        for step in path:
            inside = inside.setdefault(step, {})
    return out


def _picked(value: Any, owned: Mapping[str, Any]) -> Any:
    """`f:` names a field, `k:` an item by its keys, `v:` one by its value; a leaf is owned as a whole."""
    inside = {key: below for key, below in owned.items() if key != "."}
    if not inside:
        return value
    if isinstance(value, Mapping):
        fields_below = {key[2:]: below for key, below in inside.items() if key.startswith("f:")}
        return {name: _picked(value[name], below) for name, below in sorted(fields_below.items()) if name in value}
    if isinstance(value, list):
        return [_picked(item, below) for key, below in inside.items() for item in value if is_item(item, key)]
    return value


def is_item(item: Any, key: str) -> bool:
    """Return whether `k:{…}` or `v:…` names this item of a list."""
    try:
        item_key = json.loads(key[2:])
    except ValueError:
        return False
    if key.startswith("k:"):
        return isinstance(item, Mapping) and all(item.get(name) == value for name, value in item_key.items())
    return key.startswith("v:") and bool(item == item_key)


def holders(raw: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Managers that own the field at `path`, `("spec", "weight")`, or anything in it."""
    managers = set()
    for entry in objects.meta(raw).get("managedFields") or ():
        below: Any = entry.get("fieldsV1") or {}
        for name in path:
            below = below.get(f"f:{name}") if isinstance(below, Mapping) else None
        if below is not None:
            managers.add(str(entry.get("manager", "")))
    return sorted(managers)
