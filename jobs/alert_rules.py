"""What of rollouts is worth telling people, as `notices` evaluates it: those that go on only through a person."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.urls import reverse

from common.alerting import AlertRule, Amiss, Look, Severity, SubjectKind
from jobs.models import Rollout

STOPPED = "rollout-stopped"


def rules() -> Iterable[AlertRule]:
    yield AlertRule(
        STOPPED,
        "Rollout stopped at failures",
        "More nodes failed in a rollout than its plan allows, so that it starts no new one{lasting}.",
        Severity.CRITICAL,
        stopped,
        closes_after=timedelta(0),
        order=70,
        is_told_above=True,
    )


def stopped(cluster_id: UUID, _threshold: float) -> Look:
    rows = Rollout.objects.filter(cluster=cluster_id, status=Rollout.Status.STOPPED)
    return Look([_amiss(rollout) for rollout in rows.order_by("number")])


def _amiss(rollout: Rollout) -> Amiss:
    return Amiss(
        SubjectKind.ROLLOUT,
        str(rollout.pk),
        str(rollout),
        rollout.waiting_for or "It stopped at failures.",
        mend="Look at the failed nodes on its page; then retry, skip or revert.",
        link=reverse("jobs:rollout", args=[rollout.number]),
    )
