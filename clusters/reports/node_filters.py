"""Filters of a list of nodes: one parser of a URL's query, for the list, for saved filters and for bulk actions.

A parameter that is misspelled or has a value that does not exist empties the list and says so: ignored, it would widen
what a user looks at, or acts on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import Http404

from accounts.models import User
from clusters.models import Node, Pool
from clusters.reports import selectors
from clusters.services import label_selectors, nodes
from common import hooks
from common.errors import Invalid
from common.keyset import Orders

PLAIN = ("q", "cluster", "pool", "labels", "cordoned", "gpu_product", "health")
IGNORED = frozenset({"page", "after", "before", "ordering"})
ORDERS = Orders(
    {
        "worst": ["rank", "name"],
        "name": ["name"],
        "cluster": ["cluster__name", "name"],
        "gpu_count": ["gpu_count"],
        "gpu_allocated": ["gpu_allocated"],
        "kernel": ["kernel"],
        "changed_at": ["changed_at"],
    },
    default="worst",
    descending=frozenset({"gpu_count", "gpu_allocated", "changed_at"}),
)
LONGEST = 1000


@dataclass(slots=True)
class FilteredNodes:
    """Result of filtering: the filters asked for, the nodes that match, and errors in the query."""

    asked: dict[str, str]
    rows: QuerySet[Node]
    """All filters applied."""
    without: dict[str, QuerySet[Node]]
    """Nodes that match all filters but this axis's, by axis: its chips count these."""
    pool: Pool | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def is_filtered(self) -> bool:
        return any(self.asked.values()) or bool(self.errors)

    @property
    def query(self) -> str:
        """URL query of these filters, in one order: equal filters are equal text."""
        return urlencode([(name, value) for name, value in sorted(self.asked.items()) if value])


def read(params: Mapping[str, str], user: User) -> FilteredNodes:
    """Raises Http404 for a pool that `user` may not see."""
    contributed = {node_filter.name: node_filter for node_filter in hooks.node_filters()}
    known = (*PLAIN, *contributed)
    given = {name: str(params.get(name, "")).strip()[:LONGEST] for name in known}
    errors = {name: "There is no such filter." for name in params if name not in known and name not in IGNORED}
    rows, pool = _by_row_columns(selectors.nodes_visible_to(user), given, errors, user)
    if given["health"] and given["health"] not in selectors.HEALTH:
        errors["health"] = f"{given['health'][:40]!r} is none of {', '.join(selectors.HEALTH)}."
    for name, node_filter in contributed.items():
        if given[name] and given[name] not in node_filter.values:
            errors[name] = f"{given[name][:40]!r} is none of {', '.join(node_filter.values)}."
    if errors:
        rows = rows.none()
    narrowing: dict[str, Any] = {"health": selectors.in_health} | {n: f.narrow for n, f in contributed.items()}
    without = {}
    for axis in narrowing:
        left = rows
        for name, narrow in narrowing.items():
            if name != axis and given[name] and not errors:
                left = narrow(left, given[name])
        without[axis] = left
    last = next(reversed(narrowing))
    whole = without[last]
    if given[last] and not errors:
        whole = narrowing[last](whole, given[last])
    return FilteredNodes(given, whole, without, pool, errors)


def counts(narrowed: FilteredNodes) -> dict[str, Mapping[str, int]]:
    """Count nodes by value for each axis's chips: one query an axis."""
    by_axis: dict[str, Mapping[str, int]] = {}
    for axis in hooks.node_filters():
        by_axis[axis.name] = axis.count(narrowed.without[axis.name])
    return by_axis


def marks_of(rows: Iterable[Node]) -> dict[int, dict[str, hooks.NodeMark]]:
    """Return each node's marks by axis, on the axes that the apps above provide."""
    marks: dict[int, dict[str, hooks.NodeMark]] = {node.pk: {} for node in rows}
    for mark in hooks.node_marks(list(marks)):
        marks[mark.node_id][mark.axis] = mark
    return marks


def _by_row_columns(
    rows: QuerySet[Node], given: Mapping[str, str], errors: dict[str, str], user: User
) -> tuple[QuerySet[Node], Pool | None]:
    pool = None
    if given["q"]:
        rows = rows.filter(name__icontains=given["q"])
    if given["cluster"]:
        rows = rows.filter(cluster__name=given["cluster"])
    if given["pool"]:
        pool = _pool(given["pool"], user)
        rows = nodes.in_pool(rows, pool)
    if given["labels"]:
        try:
            rows = label_selectors.nodes(label_selectors.parse(given["labels"], "labels"), rows)
        except Invalid as refusal:
            errors["labels"] = str(refusal)
    if given["cordoned"] not in ("", "yes", "no"):
        errors["cordoned"] = "Write yes or no."
    elif given["cordoned"]:
        rows = rows.filter(is_cordoned=given["cordoned"] == "yes")
    if given["gpu_product"]:
        rows = rows.filter(gpu_product=given["gpu_product"])
    return rows, pool


def _pool(text: str, user: User) -> Pool | None:
    """None for what cannot be a pool's number."""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        return None
    found_pool = selectors.pools_visible_to(user).filter(pk=int(text)).first()
    if found_pool is None:
        raise Http404
    return found_pool
