"""Dependencies, laid out from left to right for an SVG: columns by the longest way, no arrow that is implied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.catalog import catalog
from components.catalog.entry import NODES, Component

WIDTH, HEIGHT, ACROSS, DOWN = 170, 44, 24, 8
MARGIN = 2
Slot = tuple[str, str]
"""A component and empty, or the two ends of an arrow that passes."""


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    under: str
    """Small text below the name."""
    x: int
    y: int
    is_here: bool
    tone: str = ""
    """The color class of its state, where it has one."""
    href: str = ""
    """Where it leads; empty: to its page of the catalog."""

    @property
    def text_x(self) -> int:
        return self.x + 10

    @property
    def name_y(self) -> int:
        return self.y + 19

    @property
    def under_y(self) -> int:
        return self.y + 34


@dataclass(frozen=True, slots=True)
class Graph:
    boxes: tuple[Box, ...]
    edges: str
    """One path for all arrows."""
    width: int
    height: int
    sentence: str
    """The same as text, for screen readers."""

    box_width = WIDTH
    box_height = HEIGHT


def before(component: Component) -> set[str]:
    """Return the components that come before this one when both are wanted."""
    return {name for name in {*component.needs(component.presets), *component.after} if name != NODES}


def whole() -> Graph:
    """The whole catalog."""
    return _of({component.name for component in catalog.all()})


def around(here: str) -> Graph:
    """Lay out a component with everything that comes before it, and what comes right after it."""
    behind = {component.name: before(component) for component in catalog.all()}
    shown = {here, *(name for name, earlier in _direct(behind).items() if here in earlier)}
    waiting = [here]
    while waiting:
        earlier = behind[waiting.pop()] - shown
        shown |= earlier
        waiting += earlier
    return _of(shown, here)


def _of(names: set[str], here: str = "") -> Graph:
    known = {component.name: component for component in catalog.all() if component.name in names}
    behind = {name: before(component) & names for name, component in known.items()}
    return laid_out(behind, {name: component.newest for name, component in known.items()}, here)


def laid_out(behind: Mapping[str, set[str]], under: Mapping[str, str], here: str = "") -> Graph:
    """`behind`: by name, the components that it comes after; those that others come after are first."""
    arrows = _direct(behind)
    column = _columns(arrows)
    rows: dict[int, list[Slot]] = {place: [] for place in range(max(column.values()) + 1)}
    for name in behind:
        rows[column[name]].append((name, ""))
    for name, others in arrows.items():
        for other in sorted(others):
            for place in range(column[other] + 1, column[name]):
                rows[place].append((other, name))  # keeps a way free for a long arrow
    height = 2 * MARGIN + max(map(len, rows.values())) * (HEIGHT + DOWN) - DOWN
    at: dict[tuple[int, Slot], tuple[int, int]] = {}
    for place, slots in rows.items():
        top = (height - len(slots) * (HEIGHT + DOWN) + DOWN) // 2
        for row, slot in enumerate(slots):
            at[place, slot] = (MARGIN + place * (WIDTH + ACROSS), top + row * (HEIGHT + DOWN))
    edges = []
    for name in behind:
        for other in sorted(arrows[name]):
            ways = [at[place, (other, name)] for place in range(column[other] + 1, column[name])]
            edges.append(_edge([at[column[other], (other, "")], *ways, at[column[name], (name, "")]]))
    boxes = [Box(name, under[name], *at[column[name], (name, "")], name == here) for name in behind]
    sentence = "; then ".join(", ".join(name for name, to in rows[place] if not to) for place in sorted(rows))
    return Graph(tuple(boxes), " ".join(edges), 2 * MARGIN + len(rows) * (WIDTH + ACROSS) - ACROSS, height, sentence)


def _columns(arrows: Mapping[str, set[str]]) -> dict[str, int]:
    """Each right before the first that waits for it, so that arrows are short. `arrows` is in order."""
    early: dict[str, int] = {}
    for name, others in arrows.items():
        early[name] = 1 + max((early[other] for other in others), default=-1)
    column: dict[str, int] = {}
    for name in reversed(list(arrows)):
        waiting = [column[other] for other in column if name in arrows[other]]
        column[name] = max(early[name], min(waiting) - 1) if waiting and arrows[name] else early[name]
    return column


def _direct(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows without those that follow from others."""
    reached: dict[str, set[str]] = {}
    for name in arrows:
        reached[name] = set().union(*({other} | reached[other] for other in arrows[name]))
    return {
        name: {other for other in others if not any(other in reached[more] for more in others if more != other)}
        for name, others in arrows.items()
    }


def _edge(points: Sequence[tuple[int, int]]) -> str:
    """Draw an edge from the right side of the first box to the left of the last, straight through the slots between."""
    middle, half = HEIGHT // 2, ACROSS // 2
    x, y = points[0][0] + WIDTH, points[0][1] + middle
    path = f"M{x} {y}"
    for number, (left, top) in enumerate(points[1:], start=2):
        down = top + middle
        path += f"H{left}" if down == y else f"C{x + half} {y} {left - half} {down} {left} {down}"
        x, y = left, down
        if number < len(points):
            x = left + WIDTH
            path += f"H{x}"
    return path
