"""Change rows that carry a mark as a process of ours does; a plain `update` is what somebody with SQL does."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet


def put(rows: QuerySet[Any], **fields: Any) -> None:
    for row in rows:
        row.put_marked(**fields)
