"""The short numbers that people say: P-12, R-7."""

from __future__ import annotations

from jobs.models import Counter


def next_number(kind: str) -> int:
    """The next short number. Runs in the caller's transaction, so a number is never used twice."""
    Counter.objects.get_or_create(kind=kind)
    row = Counter.objects.select_for_update().get(kind=kind)
    row.value += 1
    row.save(update_fields=["value"])
    return row.value
