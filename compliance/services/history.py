"""History of settings: written with the change itself, in its transaction, and deleted after the retention time.

So are the changes of components, which `component_checks` writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings

from common.clock import now
from compliance.models import ComponentChange, SettingChange, SettingState

FORGET_AT_ONCE = 5000
"""Rows of one DELETE: a year of history must not lock the table for minutes."""


def note(rows: Iterable[SettingState]) -> None:
    """These rows changed in what a person would call a change; see `differs`."""
    at = now()  # not `since`: within one state the value may change again
    _store(
        SettingChange(
            node_id=row.node_id,
            key=row.key,
            at=at,
            state=row.state,
            operator=row.operator,
            desired=row.desired,
            effective=row.effective,
            cause=row.cause,
            won_by=row.won_by,
            reason=row.reason,
            rollout_id=row.rollout_id,
        )
        for row in rows
    )


def note_released(rows: Iterable[SettingState]) -> None:
    """Setpoint wants nothing of these keys any more."""
    at = now()
    _store(
        SettingChange(
            node_id=row.node_id,
            key=row.key,
            at=at,
            state=SettingChange.RELEASED,
            effective=row.effective,
            rollout_id=row.rollout_id,
        )
        for row in rows
    )


def _store(changes: Iterable[SettingChange]) -> None:
    if rows := list(changes):
        SettingChange.objects.bulk_create(rows, batch_size=500)


def differs(row: SettingState, before: SettingState | None) -> bool:
    """Return whether history should record the row. An agent's other words for the same state are no change."""
    if before is None:
        return True
    names = ("state", "operator", "desired", "effective", "cause", "won_by", "rollout_id")
    return any(getattr(row, name) != getattr(before, name) for name in names)


def forget_old() -> int:
    """Rows older than SETPOINT_COMPLIANCE_HISTORY_DAYS; returns how many."""
    before = now() - timedelta(days=settings.SETPOINT_COMPLIANCE_HISTORY_DAYS)
    models: tuple[Any, ...] = (SettingChange, ComponentChange)
    return sum(_forget(model.objects, model.objects.filter(at__lt=before).order_by()) for model in models)


def _forget(every: Any, old: Any) -> int:
    forgotten = 0
    while pks := list(old.values_list("pk", flat=True)[:FORGET_AT_ONCE]):
        forgotten += every.filter(pk__in=pks).delete()[0]
    return forgotten
