"""Claiming steps in sets: one conditional update, so that two workers never hold the same step, and a killed one
loses a lease."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from common.clock import now
from jobs.models import Rollout, Step

SET_SIZE = 300
"""Steps in one slice's set: 300 calls of about 30 ms over 16 threads end well within a lease."""
UNREAD = ("node__conditions", "node__annotations")
"""Columns that no stage looks at; they are half of a node's row."""


def claim(
    rollout: Rollout, status: str, *, limit: int = SET_SIZE, batch: int | None = None, direction: str | None = None
) -> tuple[str, datetime, list[Step]]:
    """Take up to `limit` steps in one status that nobody holds and that are due. Returns token, lease end and steps."""
    token = str(uuid.uuid4())
    at = now()
    until = at + timedelta(seconds=settings.SETPOINT_LEASE_SECONDS)
    free = Q(lease_until=None) | Q(lease_until__lt=at)
    due = Q(not_before=None) | Q(not_before__lte=at)
    with transaction.atomic():
        wanted = Step.objects.filter(free, due, rollout=rollout, status=status)
        if batch is not None:
            wanted = wanted.filter(batch=batch)
        if direction is not None:
            wanted = wanted.filter(direction=direction)
        if status == Step.Status.VERIFYING:
            wanted = wanted.filter(_has_news(at))
        ids = list(wanted.order_by("batch", "position").values_list("pk", flat=True)[:limit])
        if not ids:
            return token, until, []
        Step.objects.filter(free, pk__in=ids, status=status).update(claim=token, lease_until=until)
    steps = Step.objects.filter(pk__in=ids, claim=token).select_related("node__tuning", "plan_node")
    return token, until, list(steps.defer(*UNREAD).order_by("batch", "position"))


def _has_news(at: datetime) -> Q:
    """Of steps that wait for their agents' answer: those whose answer came, whose node changed, or whose time is over.

    The others would be read, judged and put back as they are, hundreds at a time, whenever one agent answers.
    """
    answered = Q(node__tuning=None) | Q(node__tuning__observed_generation__gte=F("generation"))
    changed = Q(node__changed_at__gte=F("entered_at")) | Q(node__gone_at__isnull=False)
    return Q(waiting_for="") | answered | changed | Q(deadline_at=None) | Q(deadline_at__lte=at)


def release(token: str) -> None:
    """Give back what was claimed and not committed, so that nobody waits for the lease to end."""
    Step.objects.filter(claim=token).update(claim="", lease_until=None)
