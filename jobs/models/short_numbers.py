"""The short numbers that people say: P-12, R-7."""

from __future__ import annotations

from jobs.models import Counter


def lock(kind: str) -> Counter:
    """Hold the row of a kind until the caller's transaction ends: what is judged under it is judged one by one."""
    Counter.objects.get_or_create(kind=kind)
    return Counter.objects.select_for_update().get(kind=kind)


def next_number(kind: str) -> int:
    """The next short number. Runs in the caller's transaction, so a number is never used twice."""
    row = lock(kind)
    row.value += 1
    row.save(update_fields=["value"])
    return row.value
