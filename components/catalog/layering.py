"""Values of a release, layered as Helm layers them, with the origin of each key.

The layers, each over the one before: the catalog's own values, presets in their order, the profile, the cluster.
Helm's rules hold between them and against the chart's defaults: mappings merge, everything else replaces, and null
takes the chart's default away. (helm.sh/docs/chart_template_guide/values_files) Values that are a whole configuration
as text merge by key (components.catalog.text_values).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.errors import Invalid
from components.catalog import catalog, text_values
from components.catalog.catalog import did_you_mean
from components.catalog.entry import Component
from components.values.paths import Path, at, dotted
from components.values.secrets import REFERENCE

CATALOG, PROFILE, CLUSTER = "catalog", "profile", "cluster"


@dataclass(frozen=True, slots=True)
class Layered:
    component: Component
    version: str
    presets: tuple[str, ...]
    values: dict[str, Any]
    """What helm is given, but for the secrets, which are references still."""
    origins: dict[str, str]
    """Of each value that is no mapping, by dotted path: catalog, `preset <name>`, profile or cluster."""


def layered(
    component: Component | str,
    version: str = "",
    presets: Sequence[str] = (),
    profile_values: Mapping[str, Any] | None = None,
    cluster_values: Mapping[str, Any] | None = None,
) -> Layered:
    """All layers as one. Raises catalog.Unknown for a component or a preset, Invalid for presets that exclude each
    other."""
    known = catalog.get(component) if isinstance(component, str) else component
    chosen = tuple(dict.fromkeys(presets))
    layers: list[tuple[str, Mapping[str, Any]]] = [(CATALOG, known.values)]
    for name in chosen:
        if name not in known.presets:
            near = did_you_mean(name, known.presets)
            raise catalog.Unknown(f"{known.title} has no preset {name[:60]!r}{near}")
        layers.append((f"preset {name}", known.presets[name].values))
    if clash := excluded(known, chosen):
        raise Invalid(f"The presets {clash[0]} and {clash[1]} of {known.title} exclude each other; take one of them.")
    layers += [(PROFILE, profile_values or {}), (CLUSTER, cluster_values or {})]
    values: dict[str, Any] = {}
    origins: dict[Path, str] = {}
    for origin, given in layers:
        layer = text_values.as_texts(known, values, given)
        values = merged(values, layer)
        _note_origins(origins, layer, origin)
    shown = {dotted(path): origins[path] for path in leaves(values)}
    return Layered(known, version or known.newest, chosen, values, shown)


def excluded(component: Component, presets: Collection[str]) -> tuple[str, str] | None:
    """Two of these presets that say the opposite of each other, or None."""
    for name in presets:
        for other in component.presets[name].excludes if name in component.presets else ():
            if other in presets:
                return name, other
    return None


def lacking(component: Component, presets: Collection[str], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Presets, each with another preset of the component that it requires and that is not wanted."""
    missing = []
    for name in presets:
        for other in component.presets[name].needs if name in component.presets else ():
            wanted = component.presets[other].values
            if other not in presets and any(not _says(values, path, at(wanted, path)) for path in leaves(wanted)):
                missing.append((name, other))
    return missing


def _says(values: Mapping[str, Any], path: Path, wanted: Any) -> bool:
    """A text that says true is as good as true: charts take both."""
    try:
        return str(at(values, path)).lower() == str(wanted).lower()
    except (KeyError, TypeError):
        return False


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as helm merges the files of several `--values`: mappings merge, and everything else, null too, replaces."""
    out = dict(below)
    for key, value in above.items():
        under = out.get(key)
        is_both = _is_mapping(value) and _is_mapping(under)
        out[key] = merged(under, value) if is_both and under is not None else _copied(value)
    return out


def coalesced(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the chart's defaults under the given values: the values that its templates will see.

    Null takes a default away; so does helm, and a null for which there is no default stays null there, too.
    """
    out = {key: _copied(value) for key, value in given.items()}
    for key, default in defaults.items():
        if key not in out:
            out[key] = _copied(default)
        elif out[key] is None:
            del out[key]
        elif isinstance(out[key], dict) and isinstance(default, Mapping):
            out[key] = coalesced(out[key], default)
    return out


def _is_mapping(value: Any) -> bool:
    """A reference to a secret is one value, and no mapping to merge into."""
    return isinstance(value, Mapping) and REFERENCE not in value


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list | tuple) else value


# ── Where each value comes from ───────────────────────────────────────────────────────────────────────────────────────
def leaves(values: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    """Paths of everything that is no mapping with something in it."""
    for key, value in values.items():
        if _is_mapping(value) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def _note_origins(origins: dict[Path, str], layer: Mapping[str, Any], origin: str) -> None:
    above = {known[:length] for known in origins for length in range(1, len(known))}
    for path in leaves(layer):
        if path in above:
            if at(layer, path) == {}:
                continue  # an empty mapping over one that has something merges to what was there
            for below in [known for known in origins if known[: len(path)] == path]:
                del origins[below]
        for length in range(1, len(path)):
            origins.pop(path[:length], None)
        origins[path] = origin
