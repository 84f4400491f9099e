"""The catalog of components: what entries/*.yaml and the site's own entries describe, and no code.

The data types of an entry are in `entry`, its parser in `loader`, what each field means in docs/components.md. The
files come with Setpoint; the site's entries are rows (`site`), read again when one changed, so that every process
has them at once. `held` keeps one state of them for a request or a preparation; `extended` adds another folder, for
tests and the demo.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import Missing
from components.catalog import site
from components.catalog.entry import NODES, Component, ComponentConflict
from components.catalog.loader import read
from components.catalog.site import Stamp, StoredEntry
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
    "held",
    "joined",
    "load",
    "of_chart",
    "order",
    "search",
    "shipped",
]

HERE = Path(__file__).parent / "entries"
NO_COMPONENTS: Mapping[str, Component] = {}


class Unknown(Missing):
    """There is no such component, version or preset; the message names the nearest."""


class Circle(BadCatalog):
    """Components that wait for one another."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"these wait for one another: {' → '.join(names)} (requires, after)")
        self.names = names


@dataclass(frozen=True, slots=True)
class Catalog:
    components: Mapping[str, Component]
    """By name, in the order in which they are installed when all are wanted."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By name: why an entry of the site's own is left out."""

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


def load(*folders: Path, base: Mapping[str, Component] = NO_COMPONENTS) -> Catalog:
    """Every file of these folders, besides `base`, which HERE has. Raises BadCatalog, which names file and path."""
    described = {name: (component, HERE / f"{name}.yaml") for name, component in base.items()}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            component = read(path)
            if component.name in described:
                raise BadCatalog(f"{path}: {component.name} is described in {described[component.name][1]} already")
            described[component.name] = (component, path)
    for component, path in described.values():
        _check_names(component, path.name, described)
    return Catalog(_arranged({name: component for name, (component, _) in described.items()}))


def joined(base: Catalog, entries: Iterable[StoredEntry]) -> Catalog:
    """The catalog with the site's own entries besides. One that does not fit is left out, and never one of `base`."""
    problems: dict[str, str] = {}
    own: dict[str, Component] = {}
    for entry in entries:
        if entry.component is None:
            problems[entry.name] = entry.problem
        elif entry.name in base.components:
            problems[entry.name] = f"Setpoint's own catalog describes {entry.name}, too; that counts."
        else:
            own[entry.name] = entry.component
    while True:
        every = {**base.components, **own}
        try:
            for name, component in own.items():
                _check_names(component, name, every)
            return Catalog(_arranged(every), problems)
        except Circle as circle:
            name = min({*circle.names} & {*own})  # the base alone has none
            problems[name] = f"{name}: {circle}"
        except BadCatalog as error:
            problems[name] = str(error)
        del own[name]


def _arranged(described: Mapping[str, Component]) -> dict[str, Component]:
    """Raises BadCatalog on a cycle."""
    arrows = {
        name: {other for other in {*_needs(component), *component.after} if other != NODES}
        for name, component in described.items()
    }
    return {name: described[name] for name in _sorted(arrows)}


def _needs(component: Component) -> tuple[str, ...]:
    return component.needs(component.presets)


def _check_names(component: Component, file: str, described: Mapping[str, object]) -> None:
    named = {
        "requires": component.requires,
        "after": tuple(name for name in component.after if name != NODES),
        "conflicts": tuple(conflict.other for conflict in component.conflicts if conflict.other),
        **{f"presets.{name}.requires": preset.requires for name, preset in component.presets.items()},
    }
    for place, names in named.items():
        for name in names:
            if name not in described:
                raise BadCatalog(f"{file}: {place}: there is no component {name!r}{did_you_mean(name, described)}")


def _sorted(arrows: Mapping[str, set[str]]) -> Iterator[str]:
    """Topological, and by name among those that wait for nothing any more. Raises BadCatalog on a cycle."""
    waiting = {name: {*before} for name, before in arrows.items()}
    while waiting:
        free = min((name for name, before in waiting.items() if not before), default="")
        if not free:
            raise Circle(_cycle(waiting))
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


_loaded = [load(HERE)]
"""The one in use is the last."""
_held: ContextVar[list[Catalog] | None] = ContextVar("held", default=None)
"""The catalog that is held, once it was asked for."""
_joined: deque[tuple[Catalog, tuple[Stamp, ...], Catalog]] = deque(maxlen=1)
"""The last catalog with the site's entries, behind what it was made of: the entries' digests, so never an old one."""


def shipped() -> Catalog:
    """Return what comes with Setpoint, without the site's own entries. Asks no database."""
    return _loaded[-1]


def installed() -> Catalog:
    """Return the catalog as it is now, or as it was when it was first asked for within `held`."""
    kept = _held.get()
    if kept is None:
        return current()
    if not kept:
        kept.append(current())
    return kept[0]


@contextmanager
def held(*, is_fresh: bool = False) -> Iterator[None]:
    """Keep one state of the catalog, for one request or one look: all of it judges by the same entries.

    `is_fresh`: read it again, also within another.
    """
    token = _held.set([] if is_fresh or _held.get() is None else _held.get())
    try:
        yield
    finally:
        _held.reset(token)


def current() -> Catalog:
    """Return the catalog as it is now, also where one is held. One small query: no process judges by an old entry."""
    base = shipped()
    if not (stamps := site.stamps()):
        return base
    for of, read_at, made in tuple(_joined):
        if of is base and read_at == stamps:
            return made
    entries = site.entries()
    made = joined(base, entries)
    # Beside the stamps of these very rows: they may be newer than those that were asked for.
    _joined.append((base, tuple(entry.stamp for entry in entries), made))
    return made


@contextmanager
def extended(*folders: Path) -> Iterator[Catalog]:
    """The catalog with these folders' components besides, for as long as the context lasts, in this process."""
    _loaded.append(load(*folders, base=_loaded[0].components))  # parsing HERE again takes a second
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


def of_chart(name: str) -> list[Component]:
    """Return those that are installed from a chart of this name; the site's own come behind Setpoint's."""
    return sorted((entry for entry in all() if entry.chart.chart == name), key=lambda entry: bool(entry.entry))


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
