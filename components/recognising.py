"""Which of the catalogue's presets stand whole in the values of a release that somebody else installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components import values
from components.entry import Component, Preset
from components.layering import excluded, layered, leaves
from components.paths import Path, at
from profiles.wanted import canonical


def presets_in(
    component: Component, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Presets that say something of what was given, and what neither they nor the catalogue nor the chart say.

    A preset is named only where all of it lives there, and where presets and rest together make exactly what was given;
    the fewest that explain most. None else, and all that the chart does not say.
    """
    own = differing(given, defaults)
    names = tuple(_chosen(component, own, values.coalesced(given, defaults)))
    rest = _beside(own, layered(component, presets=names).values)
    plain = values.coalesced(layered(component, profile_values=own).values, defaults)
    if is_same(values.coalesced(layered(component, presets=names, profile_values=rest).values, defaults), plain):
        return names, rest
    return (), own


def differing(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Of what was given, what the chart does not say itself."""
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


def is_same(one: Any, other: Any) -> bool:
    try:
        return canonical(one) == canonical(other)
    except ValueError:  # no JSON
        return False


def _chosen(component: Component, own: Mapping[str, Any], effective: Mapping[str, Any]) -> Iterator[str]:
    """In the catalogue's order."""
    left = {path for path in leaves(own) if not says(component.values, path, at(own, path))}
    taken: list[str] = []
    whole = [preset for preset in component.presets.values() if _is_whole(preset, effective)]
    for preset in sorted(whole, key=lambda one: -len(list(leaves(one.values)))):
        explained: set[Path] = {path for path in left if says(preset.values, path, at(own, path))}
        if explained and not excluded(component, [*taken, preset.name]):
            taken.append(preset.name)
            left -= explained
    return (name for name in component.presets if name in taken)


def _is_whole(preset: Preset, effective: Mapping[str, Any]) -> bool:
    return all(says(effective, path, at(preset.values, path)) for path in leaves(preset.values))


def _beside(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """What is in `own` and not in `base`; a null stays, for it takes a default of the chart away."""
    out: dict[str, Any] = {}
    for key, value in own.items():
        below = base.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            if inner := _beside(value, below):
                out[key] = inner
        elif key not in base or not is_same(value, below):
            out[key] = value
    return out
