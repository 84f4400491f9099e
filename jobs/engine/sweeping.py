"""The lease under which a worker sweeps without the broker: one worker of a queue at a time. A killed one costs it.

Two at once would do no harm: what they wake is claimed in the rows. The lease saves the database from as many polls
as there are workers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from common.clock import now
from jobs.engine import claims
from jobs.models import Step, Sweeper

CELERY, HELM = "celery", "helm"
LEASE = timedelta(seconds=10)


def note_delivery(queue: str) -> None:
    """Note that a sweep came over the broker: the worker that sweeps in its place stops."""
    if not Sweeper.objects.filter(queue=queue).update(delivered_at=now()):
        Sweeper.objects.update_or_create(queue=queue, defaults={"delivered_at": now()})


def silent_sweeps(queue: str, listening_since: datetime) -> float:
    """Return how many sweeps long none came over the broker. A worker counts from its own start at the earliest."""
    last = Sweeper.objects.filter(queue=queue).values_list("delivered_at", flat=True).first()
    silent = now() - max(last or listening_since, listening_since)
    return silent.total_seconds() / settings.SETPOINT_SWEEP_SECONDS


def claim(queue: str, owner: str) -> bool:
    """Take or renew the lease of a queue. False: another worker has it."""
    at = now()
    row, _ = Sweeper.objects.get_or_create(queue=queue)
    is_same = row.since is not None and (row.delivered_at is None or row.delivered_at < row.since)
    free = Q(lease_until=None) | Q(lease_until__lt=at) | Q(owner=owner)
    taken = {"owner": owner, "lease_until": at + LEASE, "since": row.since if is_same else at}
    return bool(Sweeper.objects.filter(free, queue=queue).update(**taken))


def release(queue: str, owner: str) -> None:
    Sweeper.objects.filter(queue=queue, owner=owner).update(owner="", lease_until=None, since=None)


def without_broker(queue: str = CELERY) -> Sweeper | None:
    """Return the lease under which a worker sweeps in the broker's place; None: messages arrive."""
    return Sweeper.objects.filter(queue=queue, lease_until__gt=now()).first()


def slower_since() -> datetime | None:
    """Return since when a worker sweeps because the broker is away; None: messages arrive, or there is no broker that
    could bring them."""
    if settings.EMBEDDED or not settings.SETPOINT_HAS_BROKER:
        return None
    lease = without_broker()
    return lease.since if lease else None


def is_delivered_again(queue: str) -> bool:
    """Return whether a sweep came over the broker since a worker began to sweep in its place."""
    row = Sweeper.objects.filter(queue=queue).first()
    return bool(row and row.since and row.delivered_at and row.delivered_at > row.since)


def due_for_helm() -> list[UUID]:
    """Return the components of all rollouts that a worker of helm should begin or resume now."""
    rows = claims.due_for_helm(now()).filter(kind=Step.Kind.COMPONENT)
    return list(rows.order_by("rollout_id", "position").values_list("pk", flat=True))
