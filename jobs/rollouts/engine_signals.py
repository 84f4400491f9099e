"""Gate and ordering signals from rooms above: rows that count until they expire or are withdrawn."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from common.clock import now
from jobs.engine.event_log import log
from jobs.models import Rollout, Signal

LOOK, GATE = "look", "gate"


def newest_signal(rollout: Rollout, kind: str) -> Signal | None:
    return Signal.objects.filter(scope=f"rollout:{rollout.pk}", kind=kind, expires_at__gt=now()).first()


@transaction.atomic
def send_signal(rollout: Rollout, kind: str, *, value: Any, expires_at: datetime, reason: str = "") -> None:
    """One of a kind for each rollout, the newest counts. A gate's reason is logged when it is another one."""
    before = newest_signal(rollout, kind)
    Signal.objects.update_or_create(
        scope=f"rollout:{rollout.pk}",
        kind=kind,
        defaults={"value": value, "reason": reason[:500], "expires_at": expires_at, "created_at": now()},
    )
    if kind == GATE and (before is None or before.reason != reason[:500]):
        log(rollout, f"A gate holds the next batch: {reason}", "warn")


@transaction.atomic
def withdraw_signal(rollout: Rollout, kind: str) -> None:
    deleted, _ = Signal.objects.filter(scope=f"rollout:{rollout.pk}", kind=kind).delete()
    if deleted and kind == GATE:
        log(rollout, "The gate that held the next batch is open again.")
