"""Filters of a list. A misspelt or malformed one is refused: ignored, it would widen what a program acts on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_filters import BooleanFilter
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

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
            if not any(name == known or name.startswith(f"{known}_") for known in filters):
                errors[name] = [f"There is no such filter; there are {', '.join(sorted({*filters, *also})) or 'none'}."]
            elif isinstance(filters.get(name), BooleanFilter) and not _is_boolean(request.query_params[name]):
                errors[name] = ["Write true or false."]
        if errors:
            raise ValidationError(errors)
        return super().filter_queryset(request, queryset, view)


def _is_boolean(text: str) -> bool:
    return text.lower() in ("true", "false", "")
