"""A list as its URL asks for it: filters, order and page. The same filter sets and orders serve the API.

A filter that cannot be read is reported beside the list and not applied; lists that are acted on as a whole (nodes)
are empty instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import django_filters
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest

from common import keyset

M = TypeVar("M", bound=Model)
PAGING = ("after", "before", "page")


@dataclass(slots=True)
class Listing(Generic[M]):
    page: keyset.Page[M]
    order: keyset.Order
    orders: keyset.Orders
    asked: dict[str, list[str]] = field(default_factory=dict)
    """What the filters were given, by name; several values where a filter takes several."""
    errors: dict[str, str] = field(default_factory=dict)
    """By filter: why it was not applied."""
    counts: dict[str, int] = field(default_factory=dict)
    """By value of the column that chips show: rows that all the other filters leave."""

    @property
    def is_filtered(self) -> bool:
        return bool(self.asked)

    @property
    def query(self) -> str:
        """The filters as a URL's query, in one order: equal filters are equal text."""
        return urlencode(sorted((name, value) for name, values in self.asked.items() for value in values))


def read(
    request: HttpRequest,
    rows: QuerySet[M],
    filters: type[django_filters.FilterSet],
    orders: keyset.Orders,
    *,
    chips: str = "",
    size: int = keyset.SIZE,
) -> Listing[M]:
    """Three queries: a count, a page, and the counts of `chips`, a filter of the same name as its column."""
    bound = filters(request.GET, queryset=rows, request=request)
    cleaned: Mapping[str, Any] = bound.form.cleaned_data if bound.form.is_valid() else _usable(bound)
    narrowed = aside = rows
    for name, value in cleaned.items():
        narrowed = bound.filters[name].filter(narrowed, value)
        if name != chips:
            aside = bound.filters[name].filter(aside, value)
    order = orders.chosen(request.GET.get("ordering", ""))
    counts: dict[str, int] = {}
    if chips:
        counts = dict(aside.order_by().values_list(chips).annotate(number=Count("pk", distinct=True)))
    page = keyset.page(
        narrowed, order, after=request.GET.get("after", ""), before=request.GET.get("before", ""), size=size
    )
    given = {name: [v for v in request.GET.getlist(name) if v] for name in bound.filters}
    errors = {name: " ".join(map(str, texts)) for name, texts in bound.form.errors.items()}
    return Listing(page, order, orders, {n: v for n, v in given.items() if v}, errors, counts)


def _usable(bound: Any) -> dict[str, Any]:
    """Return the valid fields of a form that also has invalid ones."""
    return dict(bound.form.cleaned_data)
