"""Flowcharts of documents as SVG, so that no page loads a renderer: the part of Mermaid's syntax that documents use.

GitHub renders the same text itself. What is not known here is refused, so that no arrow is silently left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"\s*(-->|-\.\s*([^.]+?)\s*\.->)\s*")
_NODE = re.compile(r"[A-Za-z]\w*")
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z"/></marker></defs>'
)
WIDTH, HEIGHT, ACROSS, DOWN = 112, 30, 150, 66
"""Of a box, and from box to box, in units of the drawing."""


class UnknownSyntax(Exception):
    """A diagram uses what this module cannot draw."""


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str
    label: str = ""
    is_dotted: bool = False


def drawn(markdown: str) -> str:
    """Replace the diagrams of a document by pictures. Raises UnknownSyntax."""
    return FENCE.sub(lambda match: svg(match[1]), markdown)


def edges(text: str) -> list[Edge]:
    """Read `flowchart TB` with chains of `a --> b & c` and `a -. label .-> b`."""
    head, *lines = [line.strip() for line in text.splitlines() if line.strip()]
    if head != "flowchart TB":
        raise UnknownSyntax(f"{head!r}: only `flowchart TB` can be drawn")
    return [edge for line in lines for edge in _of_line(line)]


def _of_line(line: str) -> Iterator[Edge]:
    arrows = list(_ARROW.finditer(line))
    ends = [0, *(arrow.end() for arrow in arrows)]
    starts = [*(arrow.start() for arrow in arrows), len(line)]
    groups = [[name.strip() for name in line[a:b].split("&")] for a, b in zip(ends, starts, strict=True)]
    if not arrows or any(not _NODE.fullmatch(name) for group in groups for name in group):
        raise UnknownSyntax(f"{line!r}: only `a --> b & c` and `a -. label .-> b` can be drawn")
    for arrow, sources, targets in zip(arrows, groups, groups[1:], strict=False):
        for source in sources:
            yield from (Edge(source, target, arrow[2] or "", bool(arrow[2])) for target in targets)


def _places(of: list[Edge]) -> dict[str, tuple[float, int]]:
    """Return (column, layer) of each node: as low as its arrows allow; what the first does not reach, at the right."""
    names = list(dict.fromkeys(name for edge in of for name in (edge.source, edge.target)))
    below = {name: [edge.target for edge in of if edge.source == name] for name in names}

    def depth(name: str, path: tuple[str, ...] = ()) -> int:
        if name in path:
            raise UnknownSyntax(f"{name} is part of a circle")
        return max((depth(target, (*path, name)) + 1 for target in below[name]), default=0)

    depths = {name: depth(name) for name in names}
    reached: set[str] = set()
    waiting = [names[0]]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting += below[name]
    layers = {layer: [n for n in names if n in reached and depths[n] == layer] for layer in set(depths.values())}
    columns = max(len(layer) for layer in layers.values())
    out: dict[str, tuple[float, int]] = {}
    for name in names:
        row = layers[depths[name]]
        column = row.index(name) + (columns - len(row)) / 2 if name in reached else float(columns)
        out[name] = (column, max(depths.values()) - depths[name])
    return out


def svg(text: str) -> str:
    """Return the picture as one HTML block; colors are those of the text around it."""
    of = edges(text)
    places = _places(of)
    centers = {
        n: (column * ACROSS + WIDTH / 2 + 4, layer * DOWN + HEIGHT / 2 + 4) for n, (column, layer) in places.items()
    }
    width = max(x for x, _ in centers.values()) + WIDTH / 2 + 4
    height = max(y for _, y in centers.values()) + HEIGHT / 2 + 4
    description = "; ".join(f"{e.source} → {e.target}{f' ({e.label})' if e.label else ''}" for e in of)
    box = f'viewBox="0 0 {width:g} {height:g}"'
    parts = [f'<figure class="flowchart"><svg {box} role="img" aria-label="{escape(description)}">', TIP]
    for edge in of:
        (x1, y1), (x2, y2) = centers[edge.source], centers[edge.target]
        dotted = ' stroke-dasharray="4 4"' if edge.is_dotted else ""
        y1, y2 = y1 + HEIGHT / 2, y2 - HEIGHT / 2
        parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" marker-end="url(#tip)"{dotted}/>')
        if edge.label:
            parts.append(f'<text x="{(x1 + x2) / 2 + 84:g}" y="{(y1 + y2) / 2 + 12:g}">{escape(edge.label)}</text>')
    for name, (x, y) in centers.items():
        box = f'x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}"'
        parts.append(f'<rect {box} rx="5"/><text x="{x:g}" y="{y + 4:g}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg></figure>"])
