"""The fields of an object as server-side apply counts them: paths of `f:name`, `k:{...}` for an item of a keyed list.

What a list or map is depends on the type's schema; here it depends on the field's name (`strategic.KEYS`), and lists
inside custom resources are whole, as without schema extensions. `status` has no owner: it is not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from simfleet.apiserver.strategic import ATOMIC_IN_APPLY, SETS, key_of

Path = tuple[str, ...]
METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
WHOLE = frozenset({"selector", "labelSelector", "nodeSelector"})
"""Maps that are one field."""


def leaves(raw: Mapping[str, Any], *, is_custom: bool) -> dict[Path, Any]:
    """Every field with its value."""
    out: dict[Path, Any] = {}
    for name, value in raw.items():
        if name == "metadata":
            kept = {k: v for k, v in value.items() if k in METADATA}
            out |= _below(("f:metadata",), kept, is_custom=False)
        elif name not in ("kind", "apiVersion", "status"):
            out |= _walk((f"f:{name}",), name, value, is_custom=is_custom)
    return out


def _below(path: Path, value: Mapping[str, Any], *, is_custom: bool) -> dict[Path, Any]:
    out: dict[Path, Any] = {}
    for name, inside in value.items():
        out |= _walk((*path, f"f:{name}"), name, inside, is_custom=is_custom)
    return out


def _walk(path: Path, name: str, value: Any, *, is_custom: bool) -> dict[Path, Any]:
    if isinstance(value, Mapping) and value and name not in WHOLE:
        return _below(path, value, is_custom=is_custom)
    if isinstance(value, list) and not is_custom:
        if name in SETS:
            return {(*path, f"v:{json.dumps(item)}"): item for item in value}
        key = None if name in ATOMIC_IN_APPLY else key_of(name, value)
        if key:
            out: dict[Path, Any] = {}
            for item in value:
                out |= _below((*path, segment(key, item[key])), item, is_custom=False)
            return out
    return {path: value}


def segment(key: str, value: Any) -> str:
    return "k:" + json.dumps({key: value}, separators=(",", ":"))


def without(raw: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """The object without these fields, and without what is empty for it."""
    out = dict(raw)
    for path in paths:
        out = _cut(out, path) or {}
    return out


def _cut(value: Any, path: Path) -> Any:
    """None where nothing is left. Shares what it does not change."""
    step, rest = path[0], path[1:]
    if isinstance(value, Mapping) and step.startswith("f:") and step[2:] in value:
        name = step[2:]
        inside = _cut(value[name], rest) if rest else None
        kept = {k: v for k, v in value.items() if k != name}
        return kept | ({name: inside} if inside is not None else {}) or None
    if isinstance(value, list):
        items = [(_cut(item, rest) if rest else None) if _is_item(item, step) else item for item in value]
        return [item for item in items if item is not None] or None
    return value


def _is_item(item: Any, step: str) -> bool:
    wanted = json.loads(step[2:])
    if step.startswith("v:"):
        return bool(item == wanted)
    return isinstance(item, Mapping) and all(item.get(k) == v for k, v in wanted.items())


def encoded(paths: Iterable[Path]) -> dict[str, Any]:
    """Encode paths as `fieldsV1`."""
    out: dict[str, Any] = {}
    for path in sorted(paths):
        inside = out
        for step in path:
            inside = inside.setdefault(step, {".": {}} if step.startswith("k:") else {})
    return out


def decoded(fields: Mapping[str, Any]) -> set[Path]:
    return set(_paths(fields, ()))


def _paths(fields: Mapping[str, Any], above: Path) -> Iterator[Path]:
    for step, inside in fields.items():
        if step == ".":
            continue
        if inside and set(inside) != {"."}:
            yield from _paths(inside, (*above, step))
        else:
            yield (*above, step)


def written(path: Path) -> str:
    """Format a path as conflicts name a field: `.spec.template.spec.containers[name="main"].image`."""
    out = ""
    for step in path:
        if step.startswith("f:"):
            out += f".{step[2:]}"
        else:
            identity = json.loads(step[2:])
            pairs = (
                [f"{k}={json.dumps(v)}" for k, v in identity.items()]
                if isinstance(identity, Mapping)
                else [f"={identity}"]
            )
            out += f"[{','.join(pairs)}]"
    return out
