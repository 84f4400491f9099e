"""What happened to one object, told by every room that knows of it, in one order and paged by key.

Entries are ordered by (at, source, key), newest first. A room is asked with the cursor of the page before and gives at
most `limit` entries after it; `page` merges the rooms' answers. No room counts, so any depth costs the same.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from common.errors import Invalid

M = TypeVar("M", bound=Model)
_KEY = re.compile(r"[0-9]{20}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A whole number as `place` writes it, or a UUID."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where an entry stands in the order of all rooms' entries."""

    at: datetime
    source: str
    """The room's word for where it comes from, such as `audit`."""
    key: str
    """Of the row within its source; whole numbers are written with leading zeros, so that text sorts as they do."""


@dataclass(frozen=True, slots=True)
class Entry:
    place: Place
    text: str
    """One sentence without its time: what happened."""
    icon: str
    tone: str = ""
    """The colour class of common.look: ok, warn, bad, run, or empty."""
    by: str = ""
    url: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose timeline, for whom, and from where on."""

    kind: str
    """cluster, node, pool or profile."""
    row: Any
    user: Any
    limit: int
    before: Place | None = None

    def rows(self, queryset: QuerySet[M], source: str, *, at: str = "at") -> list[M]:
        """The next rows of one source, newest first. `at` names its column of time."""
        before = self.before
        if before is not None:
            earlier = Q(**{f"{at}__lt": before.at})
            if source < before.source:
                earlier |= Q(**{at: before.at})
            elif source == before.source:
                earlier |= Q(**{at: before.at, "pk__lt": int(before.key) if before.key.isdigit() else before.key})
            queryset = queryset.filter(earlier)
        return list(queryset.order_by(f"-{at}", "-pk")[: self.limit])


def place(at: datetime, source: str, key: Any) -> Place:
    return Place(at, source, f"{key:020d}" if isinstance(key, int) else str(key))


def page(entries: Iterable[Entry], limit: int) -> tuple[list[Entry], str]:
    """The newest `limit` of what the rooms gave, and the cursor of the next page; empty when there is none."""
    ordered = sorted(entries, key=lambda entry: entry.place, reverse=True)
    shown = ordered[:limit]
    return shown, cursor(shown[-1].place) if len(ordered) > limit else ""


def cursor(at: Place) -> str:
    text = json.dumps([at.at.isoformat(), at.source, at.key])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str) -> Place | None:
    """Raises Invalid for what no page gave out."""
    if not text:
        return None
    try:
        at, source, key = json.loads(base64.urlsafe_b64decode(text[:400] + "=" * (-len(text[:400]) % 4)))
        when = datetime.fromisoformat(at)
        if when.tzinfo is None or not isinstance(source, str) or not isinstance(key, str):
            raise ValueError(text)
        if not _KEY.fullmatch(key):
            raise ValueError(text)
    except (ValueError, TypeError) as error:
        message = "This is not a place in a timeline."
        raise Invalid(message, fields={"before": [message]}) from error
    return Place(when, source, key)
