"""Differences of two objects, field by field, and the last writer of a field, by the API server's own record.

Pure functions over JSON. A path is a tuple of names, and of `Item`s for what lies in a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clusters import objects
from clusters.kube.managed_fields import is_item
from components.values.paths import dotted


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a list."""

    label: str
    """Its name, or its place."""
    live: Any = field(default=None, compare=False)


Path = tuple["str | Item", ...]
Difference = tuple[Path, Any, Any]
"""Path, as it is wanted, as it is."""
KEYS = ("name", "containerPort", "port", "mountPath", "key", "ip", "topologyKey", "type", "resource")
"""What tells the items of a list apart, where all of them have it and no two the same."""


def differing(wanted: Any, live: Any, path: Path = ()) -> Iterator[Difference]:
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for key in sorted({*wanted, *live}, key=str):
            yield from differing(wanted.get(key, ABSENT), live.get(key, ABSENT), (*path, str(key)))
    elif isinstance(wanted, list) and isinstance(live, list):
        yield from _lists(wanted, live, path)
    elif wanted != live or isinstance(wanted, bool) is not isinstance(live, bool):
        yield path, wanted, live


def within(wanted: Any, live: Any, path: Path = ()) -> Iterator[Difference]:
    """Yield differences as `differing` does, but only in wanted fields: others may have any value."""
    for where, want, have in differing(wanted, live, path):
        if want is not ABSENT:
            yield where, want, have


def _lists(wanted: list[Any], live: list[Any], path: Path) -> Iterator[Difference]:
    if key := _key(wanted, live):
        have = {item[key]: item for item in live}
        want = {item[key]: item for item in wanted}
        for name in dict.fromkeys((*want, *have)):
            step = Item(str(name), have.get(name))
            yield from differing(want.get(name, ABSENT), have.get(name, ABSENT), (*path, step))
        if list(want) != [name for name in have if name in want] and {*want} == {*have}:
            yield path, wanted, live  # nothing but the order
    elif len(wanted) == len(live):
        for index, (want_one, have_one) in enumerate(zip(wanted, live, strict=True)):
            yield from differing(want_one, have_one, (*path, Item(str(index), have_one)))
    else:
        yield path, wanted, live


def _key(*lists: list[Any]) -> str:
    for key in KEYS:
        named = [
            [item.get(key) for item in items] for items in lists if all(isinstance(item, Mapping) for item in items)
        ]
        if len(named) < len(lists):
            return ""
        if all(map(_tells_apart, named)):
            return key
    return ""


def _tells_apart(names: list[Any]) -> bool:
    """A gateway of Istio has a mapping under `port`, which names nothing."""
    return all(isinstance(name, str | int) for name in names) and len({*map(str, names)}) == len(names)


def text(path: Path) -> str:
    """`spec.template.spec.containers[main].image`."""
    out, plain = "", list[str]()
    for step in path:
        if isinstance(step, Item):
            out, plain = f"{_joined(out, plain)}[{step.label}]", []
        else:
            plain.append(step)
    return _joined(out, plain)


def _joined(out: str, plain: Sequence[str]) -> str:
    more = dotted(plain) if plain else ""
    return f"{out}.{more}" if out and more and not more.startswith("[") else out + more


def of_record(path: Iterable[str]) -> Path:
    """A path of managedFields (clusters.kube.managed_fields) as one of these."""
    return tuple(step[2:] if step.startswith("f:") else Item(_item_label(step)) for step in path)


def _item_label(step: str) -> str:
    """Return the label of a list item for `k:{"name":"main"}` or `v:"main"`."""
    try:
        label = json.loads(step[2:])
    except ValueError:
        return step[2:]
    return ", ".join(map(str, label.values())) if isinstance(label, Mapping) else str(label)


def names(path: Path) -> list[str]:
    """Everything on the way that could say what a value is."""
    return [step.label if isinstance(step, Item) else step for step in path]


# ── who ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class FieldWriter:
    manager: str
    at: str = ""
    """As the API server wrote it: 2026-11-22T02:10:00Z."""
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.manager} (through {self.subresource})" if self.subresource else self.manager


def writer(live: Mapping[str, Any], path: Path, *, but: str = "") -> FieldWriter | None:
    """Return the manager that holds this field, the latest first; `but` only where no other does. None: unrecorded."""
    writers = []
    for entry in objects.meta(live).get("managedFields") or ():
        if isinstance(entry, Mapping) and _holds(entry.get("fieldsV1") or {}, path):
            made = FieldWriter(str(entry.get("manager") or ""), str(entry.get("time") or ""))
            writers.append(FieldWriter(made.manager, made.at, str(entry.get("subresource") or "")))
    return max(writers, key=lambda holder: (holder.manager != but, holder.at), default=None)


def _holds(owned: Any, path: Path) -> bool:
    depth = 0
    for depth, step in enumerate(path):
        inside = {key: below for key, below in owned.items() if key != "."} if isinstance(owned, Mapping) else {}
        if not inside:
            return depth > 0  # the whole of it is held, with all that is in it
        if isinstance(step, str):
            below_step = inside.get(f"f:{step}")
        else:
            below_step = next((below for key, below in inside.items() if is_item(step.live, key)), None)
        if below_step is None:
            return False
        owned = below_step
    return bool(path)


def as_text(value: Any, limit: int = 400) -> str | None:
    """A value for a page and a row; None: absent."""
    if value is ABSENT:
        return None
    full_text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return full_text if len(full_text) <= limit else f"{full_text[: limit - 1]}…"


def as_texts(wanted: Any, live: Any, limit: int = 400) -> tuple[str | None, str | None]:
    """Both sides; of long texts only the lines in which they differ."""
    if isinstance(wanted, str) and isinstance(live, str) and "\n" in wanted + live:
        left, right = wanted.splitlines(), live.splitlines()
        only_left = [line for line in left if line not in {*right}]
        only_right = [line for line in right if line not in {*left}]
        if only_left or only_right:
            return as_text("\n".join(only_left), limit), as_text("\n".join(only_right), limit)
    return as_text(wanted, limit), as_text(live, limit)
