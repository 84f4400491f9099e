"""Changes to rows that carry a mark, as a process of ours makes them; a plain `update` is as an SQL user's."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet


def put(rows: QuerySet[Any], **fields: Any) -> None:
    for row in rows:
        row.put_marked(**fields)
