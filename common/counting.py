"""Several counts, lists of keys, or short lists of rows, for the price of one query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

from django.db.models import Case, CharField, Count, Model, Q, QuerySet, Value, When

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Model)
AT_ONCE = 100
"""Parts of one query; SQLite takes 500."""


def counts_of(rows: Mapping[K, QuerySet[Any]]) -> dict[K, int]:
    """Count the rows of each of these querysets: one query for each hundred of them."""
    counts: dict[K, int] = {}
    keys = list(rows)
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        parts = [_counted(rows[key], str(place)) for place, key in enumerate(some)]
        by_place = dict(parts[0].union(*parts[1:], all=True))
        # What can have no row, such as `none()`, is left out of the query.
        counts |= {key: by_place.get(str(place), 0) for place, key in enumerate(some)}
    return counts


def _counted(rows: QuerySet[Any], place: str) -> Any:
    return _placed(rows, place).annotate(n=Count("pk")).values_list("which", "n")


def keys_of(rows: Mapping[K, QuerySet[Any]]) -> dict[K, set[Any]]:
    """The primary keys of each of these: one query for each hundred of them."""
    keys_by_name: dict[K, set[Any]] = {key: set() for key in rows}
    keys = list(rows)
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        parts = [_placed(rows[key], str(place)).values_list("which", "pk") for place, key in enumerate(some)]
        for place, pk in parts[0].union(*parts[1:], all=True):
            keys_by_name[some[int(place)]].add(pk)
    return keys_by_name


def _placed(rows: QuerySet[Any], place: str) -> Any:
    return rows.order_by().values(which=Value(place, output_field=CharField()))


def lists_of(rows: QuerySet[M], parts: Mapping[str, QuerySet[M]]) -> dict[str, list[M]]:
    """Each of `parts`, which are ordered by plain fields and cut to few rows, as its own query would list it.

    `rows` are all rows that may be seen, and say what comes along with each (`select_related`).
    """
    names = {name: f"is_in_{place}" for place, name in enumerate(parts)}
    within = {names[name]: Q(pk__in=part.values("pk")) for name, part in parts.items()}
    flags = {flag: Case(When(condition, then=Value(1)), default=Value(0)) for flag, condition in within.items()}
    any_part = Q()
    for part_condition in within.values():
        any_part |= part_condition
    lists: dict[str, list[M]] = defaultdict(list)
    for row in rows.order_by().filter(any_part).annotate(**flags):
        for name, flag in names.items():
            if getattr(row, flag):
                lists[name].append(row)
    return {name: _ordered(lists[name], part) for name, part in parts.items()}


def _ordered(rows: list[M], part: QuerySet[M]) -> list[M]:
    fields = [str(field) for field in part.query.order_by or part.model._meta.ordering or ()]
    for field in reversed(fields):
        value = attrgetter(field.lstrip("-"))
        rows.sort(key=lambda row: (value(row) is None, value(row)), reverse=field.startswith("-"))  # used at once
    return rows
