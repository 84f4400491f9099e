"""QR codes as paths of SVG images, which need neither a script nor an image from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass

import segno

RUN = re.compile(rb"\x01+")
QUIET_ZONE = 4
"""Light modules around a code, which readers need to find it (ISO/IEC 18004)."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A QR code as the path of an SVG image, one unit a module."""

    size: int
    """Width and height in modules, with the quiet zone."""

    path: str
    """Dark modules, as the `d` of a path: a rectangle for each run in a row."""


def drawing_of(text: str) -> Drawing:
    """Draw a text as a code that is still read with 15 % of it covered (level M)."""
    rows = [bytes(row) for row in segno.make_qr(text, error="m").matrix]
    path = "".join(
        f"M{run.start() + QUIET_ZONE} {y}h{len(run[0])}v1h-{len(run[0])}z"
        for y, row in enumerate(rows, QUIET_ZONE)
        for run in RUN.finditer(row)
    )
    return Drawing(len(rows) + 2 * QUIET_ZONE, path)
