"""Several counts for the price of one query."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from django.db.models import CharField, Count, QuerySet, Value

K = TypeVar("K", bound=Hashable)
AT_ONCE = 100
"""Parts of one query; SQLite takes 500."""


def counts_of(rows: Mapping[K, QuerySet[Any]]) -> dict[K, int]:
    """How many rows each of these has: one query for each hundred of them."""
    found: dict[K, int] = {}
    keys = list(rows)
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        parts = [_counted(rows[key], str(place)) for place, key in enumerate(some)]
        by_place = dict(parts[0].union(*parts[1:], all=True))
        # What can have no row, such as `none()`, is left out of the query.
        found |= {key: by_place.get(str(place), 0) for place, key in enumerate(some)}
    return found


def _counted(rows: QuerySet[Any], place: str) -> Any:
    named = rows.order_by().values(which=Value(place, output_field=CharField()))
    return named.annotate(n=Count("pk")).values_list("which", "n")
