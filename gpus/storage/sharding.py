"""A cluster's nodes in a few groups, each written as one row: by a hash of the name, so that none has to be stored.

The number of groups is a power of two and grows with the cluster. Rows say how many there were when they were written,
so a node's history is found even where the cluster has grown or shrunk since.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator

DEVICES = 256
"""A group's devices, about: a row of some kilobytes, and a transaction of some milliseconds."""
MOST = 256


def count_for(devices: int, now: int = 0) -> int:
    """Return the number of groups; `now` unless that is far too few or too many."""
    needed = 1
    while needed < MOST and needed * DEVICES < devices:
        needed *= 2
    return now if now and needed <= 2 * now and now <= 4 * needed else needed


def number(node: str, of: int) -> int:
    return zlib.crc32(node.encode()) % of


def of_all(nodes: Collection[str]) -> Iterator[tuple[int, list[int]]]:
    """Yield each possible number of groups with those groups in which the nodes would be."""
    of = 1
    while of <= MOST:
        yield of, sorted({number(node, of) for node in nodes})
        of *= 2
