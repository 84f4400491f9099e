"""Finds the catalog's presets that are fully contained in the values of a release installed outside Setpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.catalog import text_values, values_check
from components.catalog.entry import Component, Preset
from components.catalog.layering import excluded, layered, leaves
from components.values.paths import Path, at, dotted
from profiles.content.cluster import canonical


def presets_in(
    component: Component, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Presets that say something of what was given, and what neither they nor the catalog nor the chart say.

    A preset is named only where all of it lives there, and where presets and rest together make exactly what was given;
    the fewest that explain most. None else, and all that the chart does not say. Of configurations as text the meaning
    counts, not how they are written.
    """

    def plain(raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return text_values.canonical(component, raw)

    own = differing(plain(given), plain(defaults))
    names = tuple(_chosen(component, own, values_check.coalesced(plain(given), plain(defaults))))
    if any(
        not says(plain(layered(component, presets=names).values), path, at(own, path))
        for path in _texts(own, component)
    ):
        names = tuple(name for name in names if not text_values.only(component, component.presets[name].values))
    rest = _beside(own, plain(layered(component, presets=names).values))
    whole = values_check.coalesced(plain(layered(component, profile_values=own).values), plain(defaults))
    again = plain(layered(component, presets=names, profile_values=rest).values)
    if is_same(values_check.coalesced(again, plain(defaults)), whole):
        return names, rest
    return (), differing(given, defaults)


def _texts(own: Mapping[str, Any], component: Component) -> list[Path]:
    return [path for path in leaves(own) if dotted(path) in component.texts]


def differing(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given values that differ from the chart's defaults."""
    out: dict[str, Any] = {}
    for key, value in given.items():
        if key not in defaults:
            if value is not None:  # takes away what is not there
                out[key] = value
        elif isinstance(value, Mapping) and isinstance(defaults[key], Mapping):
            if inner := differing(value, defaults[key]):
                out[key] = inner
        elif not is_same(value, defaults[key]):
            out[key] = value
    return out


def says(given: Mapping[str, Any], path: Sequence[str], wanted: Any) -> bool:
    try:
        return is_same(at(given, tuple(path)), wanted)
    except (KeyError, TypeError):
        return False


def is_same(value: Any, other: Any) -> bool:
    try:
        return canonical(value) == canonical(other)
    except ValueError:  # no JSON
        return False


def _chosen(component: Component, own: Mapping[str, Any], effective: Mapping[str, Any]) -> Iterator[str]:
    """Yield the chosen presets in the catalog's order."""
    left = {path for path in leaves(own) if not says(component.values, path, at(own, path))}
    taken: list[str] = []
    merges = {*_texts(own, component)}
    layers = {name: _preset_values(component, preset, effective) for name, preset in component.presets.items()}
    whole = [
        name for name, layer in layers.items() if all(says(effective, path, at(layer, path)) for path in leaves(layer))
    ]
    for name in sorted(whole, key=lambda preset: -len(list(leaves(component.presets[preset].values)))):
        explained: set[Path] = {path for path in left if says(layers[name], path, at(own, path))}
        if explained and not excluded(component, [*taken, name]):
            taken.append(name)
            left -= explained - merges  # several presets say something of one text
    return (name for name in component.presets if name in taken)


def _preset_values(component: Component, preset: Preset, effective: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its values; of a text, what that would be with it: the same, where it lives there."""
    return text_values.canonical(component, text_values.as_texts(component, effective, preset.values))


def _beside(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is in `own` and not in `base`; a null stays, for it takes a default of the chart away."""
    out: dict[str, Any] = {}
    for key, value in own.items():
        below = base.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            if inner := _beside(value, below):
                out[key] = inner
        elif key not in base or not is_same(value, below):
            out[key] = value
    return out
