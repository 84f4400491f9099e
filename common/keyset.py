"""Pages of a list in any order, found by the values of the row before: fast at any depth, and no row is shown twice or
left out because another one came or went meanwhile."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

M = TypeVar("M", bound=Model)
SIZE = 50
LONGEST = 2000
"""Of a mark, in characters: names that people sort by are at most 253."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders of a list: the word in the URL, and the columns behind it, none of which is ever null."""

    columns: Mapping[str, Sequence[str]]
    default: str
    """As in the URL: `-number` begins with the largest."""
    descending: frozenset[str] = field(default_factory=frozenset)
    """Words whose first choice is the largest first: times, numbers."""

    def order(self, text: str) -> Order | None:
        """Return the order of this name; None for one that this list does not have."""
        name = text.removeprefix("-")
        if name not in self.columns:
            return None
        return Order(name, (*self.columns[name], "pk"), is_descending=text.startswith("-"))

    def chosen(self, text: str) -> Order:
        order = self.order(text) or self.order(self.default)
        assert order is not None, f"{self.default} is not among {list(self.columns)}"
        return order


@dataclass(frozen=True, slots=True)
class Order:
    name: str
    columns: Sequence[str]
    is_descending: bool = False

    @property
    def text(self) -> str:
        return f"{'-' if self.is_descending else ''}{self.name}"

    def of(self, rows: QuerySet[M], *, backwards: bool = False) -> QuerySet[M]:
        sign = "-" if self.is_descending is not backwards else ""
        return rows.order_by(*(f"{sign}{column}" for column in self.columns))

    def beyond(self, values: Sequence[Any], *, backwards: bool = False) -> Q:
        """Rows that come after the row with these values."""
        step = "lt" if self.is_descending is not backwards else "gt"
        condition, equal = Q(), Q()
        for column, value in zip(self.columns, values, strict=True):
            condition |= equal & Q(**{f"{column}__{step}": value})
            equal &= Q(**{column: value})
        # Said once more of the first column alone, so that an index on it is used.
        return Q(**{f"{self.columns[0]}__{step}e": values[0]}) & condition


@dataclass(slots=True)
class Page(Generic[M]):
    rows: list[M]
    count: int
    first: int
    """The place of the first row, from 1; 0 when there is none. By the marks: approximate when rows come or go."""
    next: str = ""
    """A mark for `after`; empty on the last page."""
    previous: str = ""
    """A mark for `before`; empty on the first page."""

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1 if self.rows else 0


class BadMark(ValueError):
    """A mark that is not one of this list in this order."""


def page(
    rows: QuerySet[M], order: Order, *, after: str = "", before: str = "", size: int = SIZE, count: int | None = None
) -> Page[M]:
    """The page behind one mark or before the other, else the first one. A mark that cannot be read is none."""
    total = rows.count() if count is None else count
    for mark, backwards in ((after, False), (before, True)):
        try:
            found_page = _beyond(rows, order, mark, backwards=backwards, size=size, total=total) if mark else None
        except BadMark:
            found_page = None
        if found_page is not None:
            return found_page
    seen = list(order.of(rows)[: size + 1])
    return _page(seen[:size], order, total, 1 if seen else 0, has_next=len(seen) > size, has_previous=False)


def following(rows: QuerySet[M], order: Order, mark: str, *, size: int) -> tuple[list[M], str]:
    """Rows behind a mark, the first ones for an empty mark, and the mark of the last while there are more.

    Raises BadMark.
    """
    seen = (
        _rows_beyond(rows, order, _read(mark, len(order.columns))[1], size=size)
        if mark
        else list(order.of(rows)[: size + 1])
    )
    return seen[:size], mark_of(seen[size - 1], order) if len(seen) > size else ""


def _rows_beyond(
    rows: QuerySet[M], order: Order, values: Sequence[Any], *, size: int, backwards: bool = False
) -> list[M]:
    """One more than a page, the nearest first. Raises BadMark for values that are none of these columns."""
    try:
        return list(order.of(rows.filter(order.beyond(values, backwards=backwards)), backwards=backwards)[: size + 1])
    except (ValueError, TypeError, ValidationError, OverflowError) as error:
        raise BadMark(str(error)) from error


def _beyond(rows: QuerySet[M], order: Order, mark: str, *, backwards: bool, size: int, total: int) -> Page[M] | None:
    """None where nothing is left on that side, or, going back, less than a page: then the first page is right."""
    place, values = _read(mark, len(order.columns))
    seen = _rows_beyond(rows, order, values, size=size, backwards=backwards)
    has_more, seen = len(seen) > size, seen[:size]
    if backwards:
        if not has_more:
            return None
        first = max(place - len(seen), 2)
        return _page(seen[::-1], order, total, first, has_next=True, has_previous=True)
    return _page(seen, order, total, place + 1, has_next=has_more, has_previous=True) if seen else None


def _page(seen: list[M], order: Order, total: int, first: int, *, has_next: bool, has_previous: bool) -> Page[M]:
    total = max(total, first + len(seen) - 1 if seen else 0)
    return Page(
        seen,
        total,
        first,
        next=mark_of(seen[-1], order, first + len(seen) - 1) if seen and has_next else "",
        previous=mark_of(seen[0], order, first) if seen and has_previous else "",
    )


# ── Marks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def mark_of(row: Model, order: Order, place: int = 0) -> str:
    """The row's place and values as one word for a URL. It grants nothing: it is a `where`, and no more."""
    values = [_mark_value(_value(row, column)) for column in order.columns]
    text = json.dumps([place, *values], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(mark: str, columns: int) -> tuple[int, list[Any]]:
    """Place and values. Raises BadMark for anything that `mark_of` never made."""
    try:
        decoded = json.loads(base64.urlsafe_b64decode(mark[:LONGEST] + "=" * (-len(mark) % 4)).decode())
    except (ValueError, binascii.Error, RecursionError) as error:
        raise BadMark(mark[:80]) from error
    if not isinstance(decoded, list) or len(decoded) != columns + 1:
        raise BadMark(mark[:80])
    place, *values = decoded
    is_place = isinstance(place, int) and not isinstance(place, bool) and 0 <= place < 10**9
    if not is_place or not all(isinstance(value, str | int) and _is_storable(str(value)) for value in values):
        raise BadMark(mark[:80])
    return place, values


def _is_storable(text: str) -> bool:
    """No database column holds NUL, or half a character."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _value(row: Any, column: str) -> Any:
    for name in column.split("__"):
        row = getattr(row, name)
    return row


def _mark_value(value: Any) -> str | int:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
