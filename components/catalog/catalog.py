"""The catalog of components, read from entries/*.yaml: one file a component, and no code.

The data types of a file are in `entry`, its parser in `loader`, what each field means in docs/components.md. The files
come with Setpoint; `extended` adds another folder, for tests and the demo.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.errors import Missing
from components.catalog.entry import NODES, Component, ComponentConflict
from components.catalog.loader import read
from components.catalog.yaml_reader import BadCatalog

__all__ = [
    "HERE",
    "BadCatalog",
    "Catalog",
    "Component",
    "Unknown",
    "all",
    "extended",
    "get",
    "load",
    "order",
    "search",
]

HERE = Path(__file__).parent / "entries"


class Unknown(Missing):
    """There is no such component, version or preset; the message names the nearest."""


@dataclass(frozen=True, slots=True)
class Catalog:
    components: Mapping[str, Component]
    """By name, in the order in which they are installed when all are wanted."""

    def get(self, name: str) -> Component:
        """Raises Unknown."""
        if name not in self.components:
            raise Unknown(f"There is no component {name[:60]!r} in the catalog{did_you_mean(name, self.components)}")
        return self.components[name]

    def order(self, names: Iterable[str]) -> tuple[str, ...]:
        """These, each behind those that it needs or follows. Names that are no component, and `nodes`, come first."""
        wanted = {*names}
        known = tuple(name for name in self.components if name in wanted)
        return (*sorted(wanted - {*known}), *known)


def load(*folders: Path) -> Catalog:
    """Every file of these folders. Raises BadCatalog, which names file and path."""
    described: dict[str, tuple[Component, Path]] = {}
    for folder in folders or (HERE,):
        for path in sorted(folder.glob("*.yaml")):
            component = read(path)
            if component.name in described:
                raise BadCatalog(f"{path}: {component.name} is described in {described[component.name][1]} already")
            described[component.name] = (component, path)
    for component, path in described.values():
        _names_exist(component, path, described)
    arrows = {
        name: {other for other in {*_needs(component), *component.after} if other != NODES}
        for name, (component, _) in described.items()
    }
    return Catalog({name: described[name][0] for name in _sorted(arrows)})


def _needs(component: Component) -> tuple[str, ...]:
    return component.needs(component.presets)


def _names_exist(component: Component, path: Path, described: Mapping[str, object]) -> None:
    named = {
        "requires": component.requires,
        "after": tuple(name for name in component.after if name != NODES),
        "conflicts": tuple(conflict.other for conflict in component.conflicts if conflict.other),
        **{f"presets.{name}.requires": preset.requires for name, preset in component.presets.items()},
    }
    for field, names in named.items():
        for name in names:
            if name not in described:
                raise BadCatalog(f"{path.name}: {field}: there is no component {name!r}{did_you_mean(name, described)}")


def _sorted(arrows: Mapping[str, set[str]]) -> Iterator[str]:
    """Topological, and by name among those that wait for nothing any more. Raises BadCatalog on a cycle."""
    waiting = {name: {*before} for name, before in arrows.items()}
    while waiting:
        free = min((name for name, before in waiting.items() if not before), default="")
        if not free:
            raise BadCatalog(f"these wait for one another: {' → '.join(_cycle(waiting))} (requires, after)")
        del waiting[free]
        for before in waiting.values():
            before.discard(free)
        yield free


def _cycle(waiting: Mapping[str, set[str]]) -> Sequence[str]:
    """One cycle among those that all wait for another."""
    way = [min(waiting)]
    while True:
        step = min(waiting[way[-1]])
        if step in way:
            return [*way[way.index(step) :], step]
        way.append(step)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence: `; did you mean cilium?`, or only its full stop."""
    near = difflib.get_close_matches(name[:60], known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else "."


_loaded = [load()]
"""The one in use is the last."""


def installed() -> Catalog:
    return _loaded[-1]


@contextmanager
def extended(*folders: Path) -> Iterator[Catalog]:
    """The catalog with these folders' components besides, for as long as the context lasts, in this process."""
    _loaded.append(load(HERE, *folders))
    try:
        yield _loaded[-1]
    finally:
        _loaded.pop()


def get(name: str) -> Component:
    """Raises Unknown."""
    return installed().get(name)


def all() -> tuple[Component, ...]:
    """Return all components in the order in which they are installed when all are wanted."""
    return tuple(installed().components.values())


def conflicts_of(component: Component) -> Iterator[tuple[ComponentConflict, str]]:
    """Each conflict of the component, and the name of the other one; empty for what the catalog does not install.

    One of both files is enough: where a conflict is declared by the other component, its own name is given as the
    other, and `unless` and `unless_other` keep the meaning that the file gives them.
    """
    for conflict in component.conflicts:
        yield conflict, conflict.other
    known = {conflict.other for conflict in component.conflicts}
    for other in all():
        for conflict in other.conflicts if other.name not in known else ():
            if conflict.other == component.name:
                yield conflict, other.name


def search(words: str) -> tuple[Component, ...]:
    """Those in whose name, title, summary, presets or intents every word occurs; all of them for no words."""
    words_wanted = words.lower().split()
    return tuple(component for component in all() if not any(word not in _haystack(component) for word in words_wanted))


def _haystack(component: Component) -> str:
    presets = (f"{preset.name} {preset.title} {' '.join(preset.intents)}" for preset in component.presets.values())
    return f"{component.name} {component.title} {component.summary} {' '.join(presets)}".lower()


def order(names: Iterable[str]) -> tuple[str, ...]:
    """These, each behind those that it needs or follows."""
    return installed().order(names)
