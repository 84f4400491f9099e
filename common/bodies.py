"""Strict request bodies: the fields that their serializer declares, and nothing else.

A field that is not known, or only read, is refused: ignored, a misspelled `until` would make a freeze endless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Response])
_LISTED = 20
"""At most so many unknown names are listed in one answer."""


class Body(serializers.Serializer[T]):
    # No docstring: the OpenAPI document would show it as the description of every body derived from this.
    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            takes = [name for name, field in self.fields.items() if not field.read_only]
            unknown = sorted(str(name)[:80] for name in set(data) - set(takes))
            if unknown:
                raise serializers.ValidationError({name: [_unknown_field(name, takes)] for name in unknown[:_LISTED]})
        return super().to_internal_value(data)


_OFFSET = "Say the offset from UTC, too, as in 2027-01-01T00:00:00Z or 2027-01-01T00:00:00+01:00."


class Instant(serializers.DateTimeField):
    """A moment. One without an offset is refused: read as UTC, a freeze ends hours off its author's midnight."""

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise serializers.ValidationError(_OFFSET)
        return super().enforce_timezone(value)


def without_body(handler: Handler) -> Handler:
    """Decorate what takes no fields at all: an empty body, or none. A `reason` or `until` sent there would be lost."""

    @wraps(handler)
    def judged(view: object, request: Request, *args: Any, **kwargs: Any) -> Response:
        refuse_body(request)
        return handler(view, request, *args, **kwargs)

    return cast("Handler", judged)


def refuse_body(request: Request) -> None:
    """Raises ValidationError."""
    if request.data:
        Body(data=request.data).is_valid(raise_exception=True)


def _unknown_field(name: str, takes: list[str]) -> str:
    near = get_close_matches(name, takes, n=1)
    hint = f" Did you mean {near[0]}?" if near else f" There are {', '.join(takes)}." if takes else " There are none."
    return f"There is no such field.{hint}"
