"""Values that are a whole configuration as YAML text, merged by key where a layer gives a mapping in the text's place.

Helm can only replace such a text, so two presets would undo each other, and what the chart has in it by default would
be lost. The catalog names these values with the chart's own text; the result is one text again before helm sees it.

Mappings merge, as everywhere; so do lists of mappings with a `name`, by it (`$gone: true` takes one away), and other
lists of mappings by their position. Everything else replaces, and null takes a key away. A text replaces the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from components.catalog.entry import Component
from components.values import chart_yaml

GONE = "$gone"


def as_texts(component: Component, below: Mapping[str, Any], layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The layer with a text for each mapping that it has in a text's place, merged over what is below."""
    for path, own in component.texts.items():
        way = path.split(".")
        given = _at(layer, way)
        if not isinstance(given, Mapping):
            continue
        under = _at(below, way)
        base = parsed(under if isinstance(under, str) else own)
        # What is below and no mapping stays, for the judge to name.
        text = str(under) if base is None else _dumped(merged(base, given))
        layer = _with(layer, way, text)
    return layer


def canonical(component: Component, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with each such text as it is always written: for comparing."""
    values = as_texts(component, {}, values)
    for path in component.texts:
        way = path.split(".")
        value = _at(values, way)
        if isinstance(value, str) and (mapping := parsed(value)) is not None:
            values = _with(values, way, str(yaml.safe_dump(mapping, width=4096, allow_unicode=True)))
    return values


def only(component: Component, values: Mapping[str, Any]) -> bool:
    """Return whether these values consist of such texts alone."""
    for path in component.texts:
        way = path.split(".")
        if _at(values, way) is not None:
            values = _without(values, way)
    return not values


def parsed(text: str) -> dict[str, Any] | None:
    """None: it is no mapping."""
    try:
        document = chart_yaml.load(text.encode())
    except chart_yaml.BadChartYaml:
        return None
    return document if isinstance(document, dict) else None


def merged(below: Any, above: Any) -> Any:
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        out = dict(below)
        for key, value in above.items():
            if value is None:
                out.pop(key, None)
            else:
                out[key] = merged(out[key], value) if key in out else _clean(value)
        return out
    if _are_mappings(below) and _are_mappings(above):
        return _by_name(below, above) if all("name" in item for item in (*below, *above)) else _by_place(below, above)
    return _clean(above)


def _by_name(below: Sequence[Mapping[str, Any]], above: Sequence[Mapping[str, Any]]) -> list[Any]:
    out = {item["name"]: item for item in below}
    for item in above:
        if item.get(GONE):
            out.pop(item["name"], None)
        else:
            out[item["name"]] = merged(out.get(item["name"], {}), item)
    return list(out.values())


def _by_place(below: Sequence[Any], above: Sequence[Any]) -> list[Any]:
    both = [merged(item, other) for item, other in zip(below, above, strict=False)]
    return [*both, *below[len(both) :], *map(_clean, above[len(both) :])]


def _are_mappings(raw: Any) -> bool:
    return isinstance(raw, list | tuple) and bool(raw) and all(isinstance(item, Mapping) for item in raw)


def _clean(raw: Any) -> Any:
    """Return a copy without the nulls and list items that only remove something."""
    if isinstance(raw, Mapping):
        return {key: _clean(value) for key, value in raw.items() if value is not None}
    if isinstance(raw, list | tuple):
        return [_clean(item) for item in raw if not (isinstance(item, Mapping) and item.get(GONE))]
    return raw


def _dumped(raw: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(raw, sort_keys=False, width=4096, allow_unicode=True))


def _at(raw: Any, way: Sequence[str]) -> Any:
    for step in way:
        if not isinstance(raw, Mapping) or step not in raw:
            return None
        raw = raw[step]
    return raw


def _with(raw: Mapping[str, Any], way: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = way
    return {**raw, first: _with(raw[first], rest, value) if rest else value}


def _without(raw: Mapping[str, Any], way: Sequence[str]) -> dict[str, Any]:
    first, *rest = way
    inner = _without(raw[first], rest) if rest else {}
    return {key: inner if key == first else value for key, value in raw.items() if key != first or inner}
