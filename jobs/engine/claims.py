"""Claiming steps in sets: one conditional update, so that two workers never hold the same step, and a killed one
loses a lease."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, F, Q, QuerySet

from clusters.models import Cluster
from common.clock import now
from jobs.diffs import cluster_scope
from jobs.engine import commit
from jobs.forecast.strategy import Strategy
from jobs.models import Freeze, Rollout, Step

SET_SIZE = 300
"""Steps in one slice's set: 300 calls of about 30 ms over 16 threads end well within a lease."""
UNREAD = ("node__conditions", "node__annotations")
"""Columns that no stage looks at; they are half of a node's row."""


def _free(at: datetime) -> Q:
    return Q(lease_until=None) | Q(lease_until__lt=at)


def _due(at: datetime) -> Q:
    return Q(not_before=None) | Q(not_before__lte=at)


def claim(
    rollout: Rollout,
    status: str,
    *,
    kind: str = Step.Kind.NODE,
    limit: int = SET_SIZE,
    batch: int | None = None,
    direction: str | None = None,
) -> tuple[str, datetime, list[Step]]:
    """Take up to `limit` steps of one kind and status that are unclaimed and due.

    Returns token, lease end and steps.
    """
    token = str(uuid.uuid4())
    at = now()
    until = at + timedelta(seconds=settings.SETPOINT_LEASE_SECONDS)
    due = Step.objects.filter(_free(at), _due(at), rollout=rollout, kind=kind, status=status)
    if batch is not None:
        due = due.filter(batch=batch)
    if direction is not None:
        due = due.filter(direction=direction)
    if kind != Step.Kind.NODE and status == Step.Status.APPLYING:
        due = due.filter(deadline_at__lte=at)  # before that it is its worker's, see jobs.engine.component_runner
    elif kind == Step.Kind.NODE and status == Step.Status.VERIFYING:
        due = due.filter(_has_news(at))
    ids = list(due.order_by("batch", "position").values_list("pk", flat=True)[:limit])
    if not ids:
        return token, until, []
    Step.objects.filter(_free(at), pk__in=ids, status=status).update(claim=token, lease_until=until)
    # Put in order here: to order by two of a hundred columns, the ORM compares each of them.
    steps = Step.objects.filter(pk__in=ids, claim=token).order_by()
    if kind != Step.Kind.NODE:
        steps = steps.select_related("plan_component")
    else:
        steps = steps.select_related("node__tuning", "plan_node").defer(*UNREAD)
    return token, until, sorted(steps, key=lambda step: (step.batch, step.position))


def due_for_helm(at: datetime) -> QuerySet[Step]:
    """Return components and policy objects that a worker may begin or resume: applying, due, and unclaimed.
    Not of a cluster that is another installation's (law 12), not after a restore that no administrator has confirmed,
    and not what an abort passes over or reverts.
    """
    rows = Step.objects.of_components().filter(
        _free(at), _due(at), status=Step.Status.APPLYING, rollout__status__in=Rollout.LIVE
    )
    rows = rows.filter(rollout__cluster__ownership=Cluster.Ownership.OURS)
    rows = rows.exclude(Exists(Freeze.after_restore().order_by()))
    aborting = Rollout.objects.filter(status=Rollout.Status.ABORTING)
    rows = rows.exclude(direction=Step.Direction.FORWARD, rollout__in=aborting.filter(abort_reverts=True))
    return rows.exclude(direction=Step.Direction.FORWARD, granted_at=None, rollout__in=aborting)


def claim_for_helm(step_id: uuid.UUID) -> tuple[str, Step | None]:
    """One of them for this worker. None: it is another party's, or not due."""
    token = str(uuid.uuid4())
    at = now()
    until = at + timedelta(seconds=settings.SETPOINT_LEASE_SECONDS)
    if not due_for_helm(at).filter(pk=step_id).exists():
        return token, None
    # By columns of the row alone: PostgreSQL judges them again when another worker was faster, but no subquery.
    free = Step.objects.filter(_free(at), pk=step_id, status=Step.Status.APPLYING)
    if not free.update(claim=token, lease_until=until):
        return token, None
    of_rollout = (
        "rollout__cluster",
        "rollout__plan__revision",
        "rollout__plan__pool",
        "rollout__glass__person",
    )
    return token, Step.objects.select_related("plan_component", *of_rollout).filter(pk=step_id, claim=token).first()


def begin_helm(step: Step, token: str, strategy: Strategy) -> bool:
    """Mark the step as begun; the first time in an attempt its own time begins. False: it was lost."""
    fields: dict[str, object] = {"has_applied": True, "waiting_for": cluster_scope.STATE_TEXTS[step.kind].runs}
    if step.granted_at is None:
        at = now()
        fields |= {"granted_at": at, "deadline_at": at + timedelta(seconds=commit.apply_seconds(step, strategy))}
    if not Step.objects.filter(pk=step.pk, claim=token, version=step.version).update(**fields):
        return False
    for name, value in fields.items():
        setattr(step, name, value)
    return True


def renew(step: Step, token: str, until: datetime, output: list[str]) -> bool:
    """Keep one claim for longer, and show helm's output. False: it was lost."""
    return bool(Step.objects.filter(pk=step.pk, claim=token).update(lease_until=until, output=output))


def _has_news(at: datetime) -> Q:
    """Select, of steps that wait for their agents' answer, those whose answer came, node changed, or time is over.

    The others would be read, judged and put back as they are, hundreds at a time, whenever one agent answers.
    """
    answered = Q(node__tuning=None) | Q(node__tuning__observed_generation__gte=F("generation"))
    changed = Q(node__changed_at__gte=F("entered_at")) | Q(node__gone_at__isnull=False)
    return Q(waiting_for="") | answered | changed | Q(deadline_at=None) | Q(deadline_at__lte=at)


def release(token: str) -> None:
    """Give back what was claimed and not committed, so that no worker waits for the lease to end."""
    Step.objects.filter(claim=token).update(claim="", lease_until=None)
