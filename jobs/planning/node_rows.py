"""Nodes of a pool as a plan reads them: in pages, and in memory as little as their values differ.

A node's agent reports hundreds of values. Decoded, they take tens of kilobytes a node, most of it the same texts again
and again. Here all nodes share the texts, and those that report the same keys share the table of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clusters.models import Node, Pool
from clusters.services.pools import matching

PAGE = 500
"""Nodes decoded at once: what a page takes before its texts are shared is some megabytes."""
_UNREAD = (
    "conditions", "gpu_shares", "gpu_plugin", "gpus_by_claim", "os_image", "boot_id", "ready_reason",
    "resource_version", "versioned_at", "changed_at", "tuning__resource_version", "tuning__versioned_at",
    "tuning__changed_at",
)  # fmt: skip
"""Columns that no part of a plan depends on: decoding each costs as much as a node's labels, or is memory."""

Progress = Callable[[str, int, int], None]
"""Called with a phase, and how many of how many nodes are through it. What it raises ends the planning."""

READING, COMPARING, CIRCUMSTANCES, STORING = "reading", "comparing", "circumstances", "storing"
PHASES = (READING, COMPARING, CIRCUMSTANCES, STORING)
"""Of making a plan, in this order."""


def unnoted(phase: str, done: int, total: int) -> None:
    """Progress that interests no reader."""


class ReportedValues(Mapping[str, str]):
    """Values by key, with the table of the keys shared by all nodes that report the same ones."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: tuple[str, ...]) -> None:
        self._places, self._values = places, values

    def __getitem__(self, key: str) -> str:
        return self._values[self._places[key]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def get(self, key: str, default: Any = None) -> Any:
        """Return what Mapping's own does, without an exception for each key that is not there."""
        place = self._places.get(key)
        return default if place is None else self._values[place]


class SharedTexts:
    """Texts, tables of keys and lists of values that were met before, for one plan."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._tables: dict[tuple[str, ...], dict[str, int]] = {}
        self._rows: dict[tuple[str, ...], tuple[str, ...]] = {}

    def text(self, value: str) -> str:
        return self._texts.setdefault(value, value)

    def values(self, reported: Mapping[str, str]) -> ReportedValues:
        keys = tuple(reported)
        if (table := self._tables.get(keys)) is None:
            table = self._tables[keys] = {self.text(key): place for place, key in enumerate(keys)}
        values = tuple(reported.values())
        if (known := self._rows.get(values)) is None:
            known = tuple(map(self.text, values))
            self._rows[known] = known
        return ReportedValues(table, known)

    def flat(self, value: Mapping[str, str]) -> dict[str, str]:
        """Return the same texts by text, shared."""
        known = self._texts.setdefault
        return {known(key, key): known(item, item) for key, item in value.items()}

    def of(self, value: Any) -> Any:
        """Return the same JSON value, with shared texts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.of(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        return value


def read_nodes(pool: Pool, progress: Progress = unnoted) -> list[Node]:
    """Return the pool's present nodes by name, each with its tuning where it has one."""
    keys = list(matching(pool).order_by("name", "pk").values_list("pk", flat=True))
    shared, nodes = SharedTexts(), list[Node]()
    for start in range(0, len(keys), PAGE):
        rows = Node.objects.present().filter(pk__in=keys[start : start + PAGE])
        page = list(rows.select_related("tuning").defer(*_UNREAD).order_by("name", "pk"))
        for node in page:
            _share(node, shared)
        nodes += page
        progress(READING, min(start + PAGE, len(keys)), len(keys))
    return nodes


def _share(node: Node, shared: SharedTexts) -> None:
    node.kernel = shared.text(node.kernel)
    node.labels, node.annotations = shared.flat(node.labels), shared.flat(node.annotations)
    node.taints, node.allocatable = shared.of(node.taints), shared.of(node.allocatable)
    tuning = getattr(node, "tuning", None)
    if tuning is not None:
        tuning.observed = shared.values(tuning.observed)
        tuning.status = shared.of(tuning.status)
