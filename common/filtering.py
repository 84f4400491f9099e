"""Filters of a list. A misspelled or malformed one is refused: ignored, it would widen what a program acts on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import django_filters
from django import forms
from django.db.models import Q
from django_filters import BooleanFilter
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from common.clock import now

EVERY_LIST = frozenset({"limit", "offset", "start", "ordering", "fields", "format"})


class StrictFilters(DjangoFilterBackend):  # type: ignore[misc]
    """A view's filters, and nothing else. `also_accepts` on the view names parameters that it reads by itself."""

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        filterset = self.get_filterset(request, queryset, view)
        filters = filterset.filters if filterset is not None else {}
        also: Sequence[str] = getattr(view, "also_accepts", ())
        errors: dict[str, list[str]] = {}
        for name in request.query_params:
            if name in EVERY_LIST or name in also:
                continue
            if name not in filters:
                errors[name] = [f"There is no such filter; there are {', '.join(sorted({*filters, *also})) or 'none'}."]
            elif isinstance(filters.get(name), BooleanFilter) and not _is_boolean(request.query_params[name]):
                errors[name] = ["Write true or false."]
        if errors:
            raise ValidationError(errors)
        return super().filter_queryset(request, queryset, view)


def _is_boolean(text: str) -> bool:
    return text.lower() in ("true", "false", "")


def order_of(params: Mapping[str, str], filters: Sequence[str], orders: Sequence[str], **choices: Sequence[str]) -> str:
    """Return the word to sort by, with its sign, of a list that is no table; empty for the list's own order.

    `choices` are the values that a filter may have. Raises ValidationError for any filter, value or order that this
    list lacks.
    """
    known = ", ".join(filters)
    wrong = {name: [f"There is no such filter; there are {known}."] for name in {*params} - {*filters} - EVERY_LIST}
    order = params.get("ordering", "").strip()
    if order.removeprefix("-") not in ("", *orders):
        wrong["ordering"] = [f"{order[:40]!r} is not possible here; order by {', '.join(orders)}."]
    for name, values in choices.items():
        if params.get(name) and params[name] not in values:
            wrong[name] = [f"There is no such {name}; there are {', '.join(values)}."]
    if wrong:
        raise ValidationError(wrong)
    return order


# ── Kinds of filters that every list knows ────────────────────────────────────────────────────────────────────────────
_AGO = re.compile(r"([0-9]{1,4})([hd])")


class InstantField(forms.Field):
    """`2026-11-21`, `2026-11-21T08:00:00Z`, or how long ago: `24h`, `7d`."""

    def to_python(self, value: Any) -> datetime | None:
        text = str(value or "").strip()
        if not text:
            return None
        if ago := _AGO.fullmatch(text):
            number = int(ago[1])
            return now() - (timedelta(hours=number) if ago[2] == "h" else timedelta(days=number))
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError as error:
            raise forms.ValidationError("Write 2026-11-21, 2026-11-21T08:00:00Z, or 24h, 7d.") from error
        if not 1970 <= parsed.year <= 9000:  # further out, no offset can be added to it
            raise forms.ValidationError("A year between 1970 and 9000.")
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


class InstantFilter(django_filters.CharFilter):  # type: ignore[misc]
    """An instant, or how long ago it was."""

    field_class = InstantField

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("help_text", "An instant (2026-11-21T08:00:00Z), a day, or how long ago: 24h, 7d.")
        super().__init__(*args, **kwargs)


class ClusterReferenceFilter(django_filters.CharFilter):  # type: ignore[misc]
    """A cluster's id, or its name, as people write it in a URL."""

    def __init__(self, field_name: str = "cluster", **kwargs: Any) -> None:
        super().__init__(field_name=field_name, max_length=63, help_text="A cluster's id or name.", **kwargs)

    def filter(self, rows: Any, value: str) -> Any:
        if not value:
            return rows
        try:
            return rows.filter(**{self.field_name: UUID(value)})
        except ValueError:
            return rows.filter(**{f"{self.field_name}__name": value})


class PersonFilter(django_filters.CharFilter):  # type: ignore[misc]
    """People by how their email begins, or `me`; `field_names` say which of a row's people are meant."""

    def __init__(self, *field_names: str, **kwargs: Any) -> None:
        super().__init__(max_length=254, help_text="How the person's email begins, or me.", **kwargs)
        self.field_names = field_names

    def filter(self, rows: Any, value: str) -> Any:
        if not value:
            return rows
        condition = Q()
        for name in self.field_names:
            condition |= Q(
                **({name: self.parent.request.user} if value == "me" else {f"{name}__email__istartswith": value})
            )
        return rows.filter(condition)
