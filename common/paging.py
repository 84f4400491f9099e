"""Order and pages of a list: `limit` and `offset` with a count, or `start` by key, which is fast at any depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from django.core.exceptions import ValidationError as DjangoValidationError
from django.db.models import Model, QuerySet
from rest_framework import filters
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param
from rest_framework.views import APIView

from common import keyset

M = TypeVar("M", bound=Model)
R = TypeVar("R")

LIMIT = 50
MOST = 1000
DEEPEST = 1_000_000
"""Rows that may be skipped with `offset`: the database reads them all. Beyond that, `start` is the way."""


class Ordering(filters.OrderingFilter):
    """`?ordering=name,-created_at` over the view's `orders`, which its page has too, or its `ordering_fields`.

    Anything else is refused; ties break by key.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet[M, R], view: APIView) -> QuerySet[M, R]:
        terms = [term.strip() for term in request.query_params.get(self.ordering_param, "").split(",") if term.strip()]
        if not terms:
            return queryset
        orders: keyset.Orders | None = getattr(view, "orders", None)
        allowed: Sequence[str] = tuple(orders.columns if orders else getattr(view, "ordering_fields", None) or ())
        if orders and len(terms) == 1 and (order := orders.order(terms[0])):
            ordered: Any = order.of(cast(Any, queryset))
            return cast("QuerySet[M, R]", ordered)
        columns: list[str] = []
        for term in terms:
            name, sign = term.removeprefix("-"), "-" if term.startswith("-") else ""
            if name not in allowed:
                known = ", ".join(allowed) or "nothing"
                raise ValidationError({"ordering": [f"{term!r} is not possible here; order by {known}."]})
            columns += [f"{sign}{column}" for column in (orders.columns[name] if orders else (name,))]
        return queryset.order_by(*columns, "pk")


class Paging(BasePagination):
    """`{count, next, previous, results}`; with `?start=` rows come in the order of their key, and `count` is null.

    Where the view has `orders`, `start` goes together with one word of `ordering`.
    """

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> list[Any]:
        self.request = request
        self.limit = _number(request, "limit", LIMIT, 1, MOST)
        if "start" in request.query_params:
            return self._by_key(queryset, getattr(view, "orders", None))
        self.offset = _number(request, "offset", 0, 0, DEEPEST)
        self.count: int | None = _counted(queryset, view)
        self.next: Any = self.offset + self.limit if self.offset + self.limit < self.count else None
        if isinstance(queryset, QuerySet) and not queryset.ordered:
            queryset = queryset.order_by("pk")
        return list(queryset[self.offset : self.offset + self.limit])

    def _by_key(self, queryset: Any, orders: keyset.Orders | None) -> list[Any]:
        if not isinstance(queryset, QuerySet):
            raise ValidationError({"start": ["This list has no keys; use limit and offset."]})
        if orders and "offset" not in self.request.query_params:
            order = orders.order(self.request.query_params.get("ordering", ""))
            if order:
                return self._in_order(queryset, order)
        if clash := {"ordering", "offset"} & set(self.request.query_params):
            raise ValidationError({"start": [f"start orders by key and cannot be combined with {sorted(clash)[0]}."]})
        start = self.request.query_params["start"]
        self.count = None
        try:
            after = queryset.filter(pk__gt=start) if start else queryset
            rows = list(after.order_by("pk")[: self.limit + 1])
        except (ValueError, DjangoValidationError, OverflowError) as error:
            raise ValidationError({"start": [f"{start[:80]!r} is not a key of this list."]}) from error
        self.next = rows[self.limit - 1].pk if len(rows) > self.limit else None
        return rows[: self.limit]

    def _in_order(self, queryset: Any, order: keyset.Order) -> list[Any]:
        start = self.request.query_params["start"]
        self.count = None
        try:
            rows, mark = keyset.following(queryset, order, start, size=self.limit)
        except keyset.BadMark as error:
            raise ValidationError({"start": [f"{start[:80]!r} is no place in this list in this order."]}) from error
        self.next = mark or None
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        url = self.request.build_absolute_uri()
        following = previous = None
        if self.next is not None:
            following = replace_query_param(url, "offset" if self.count is not None else "start", self.next)
        if self.count is not None and self.offset > 0:
            before = self.offset - self.limit
            previous = replace_query_param(url, "offset", before) if before > 0 else remove_query_param(url, "offset")
        return Response({"count": self.count, "next": following, "previous": previous, "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["count", "next", "previous", "results"],
            "properties": {
                "count": {"type": "integer", "nullable": True, "description": "Null with start=."},
                "next": link,
                "previous": link,
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        def parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
            return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}

        return [
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}, "Rows of a page."),
            parameter("offset", {"type": "integer", "minimum": 0, "maximum": DEEPEST}, "Rows to skip."),
            parameter(
                "start",
                {"type": "string"},
                "Keyset paging: rows after this key, in the order of keys or of one `ordering`, without a count; "
                "empty for the first page, then as `next` says.",
            ),
        ]


def _counted(queryset: Any, view: APIView | None) -> int:
    """Count the rows, by the view's own `counted` where it has one: it reads counts that are rolled up elsewhere."""
    if quicker := getattr(view, "counted", None):
        return int(quicker(queryset))
    return queryset.count() if isinstance(queryset, QuerySet) else len(queryset)


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name, "").strip()
    if not text:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= number <= most:
        raise ValidationError({name: [f"A whole number between {least} and {most}, not {text[:40]!r}."]})
    return number
