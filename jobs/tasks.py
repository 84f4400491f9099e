"""Celery is an alarm clock: ids in, one short slice done, delivered twice nothing happens twice."""

from __future__ import annotations

import logging
from uuid import UUID

from celery import shared_task
from django.conf import settings

from jobs import approvals, joining
from jobs.engine import slice as engine
from jobs.models import Rollout

log = logging.getLogger(__name__)


@shared_task(ignore_result=True)
def sweep() -> None:
    """Beat: wake what is due. A lost message costs SETPOINT_SWEEP_SECONDS, not a rollout."""
    for pk in Rollout.objects.due().values_list("pk", flat=True):
        advance.apply_async((str(pk),), expires=settings.SETPOINT_SWEEP_SECONDS)


@shared_task(ignore_result=True)
def advance(rollout_id: str) -> None:
    """Slices of one rollout until nothing moves. Any number may run at once: steps are claimed in sets."""
    engine.run(UUID(rollout_id))


@shared_task(ignore_result=True)
def draft_joining() -> None:
    """Beat: a plan for nodes that joined a pool and wait. Two at once draft twice, and the next takes one back."""
    joining.draft()


@shared_task(ignore_result=True)
def expire_plans() -> None:
    approvals.expire()
    approvals.remind()
