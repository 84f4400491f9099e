"""Alert rules of rollouts, as `notices` evaluates them: about those that continue only through a person."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.urls import reverse

from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind
from jobs.engine import deadlines
from jobs.models import BreakGlass, Rollout, Step

STOPPED, REFUSED = "rollout-stopped", "rollout-credential-refused"
UNREVIEWED = "break-glass-overdue"


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
    yield AlertRule(
        REFUSED,
        "Rollout waits for a credential",
        "A step is refused by the API server although the cluster itself can be read: the credential that installs "
        "components, or one of several API servers{lasting}. The step waits, with its node as it is.",
        Severity.CRITICAL,
        waiting_for_credentials,
        closes_after=timedelta(0),
        order=69,
    )

    yield AlertRule(
        UNREVIEWED,
        "Review of a break-glass start is overdue",
        "A rollout was started without approval, and two approvers have not reviewed that in time{lasting}.",
        Severity.WARNING,
        unreviewed,
        closes_after=timedelta(0),
        order=71,
    )


def stopped(cluster_id: UUID, _threshold: float) -> RuleResult:
    rows = Rollout.objects.filter(cluster=cluster_id, status=Rollout.Status.STOPPED)
    mend = "Look at the failed nodes on its page; then retry, skip or revert."
    return RuleResult(
        [_condition(row, row.waiting_for or "It stopped at failures.", mend) for row in rows.order_by("number")]
    )


def waiting_for_credentials(cluster_id: UUID, _threshold: float) -> RuleResult:
    """Return rollouts that wait for a new credential; where the cluster itself refuses, its own alert says so."""
    steps = Step.objects.filter(
        rollout__cluster=cluster_id,
        rollout__cluster__refused_since=None,
        rollout__status__in=Rollout.LIVE,
        status__in=Step.ACTIVE,
        waiting_for__startswith=deadlines.REFUSED,
    )
    first = {step.rollout_id: step for step in steps.select_related("rollout__cluster").order_by("-position")}
    mend = "Replace the credential: `manage.py helm_credential` for components, else on the cluster's page."
    return RuleResult(
        [
            _condition(step.rollout, f"{step.node_name or step.component}: {step.waiting_for}", mend)
            for step in first.values()
        ]
    )


def unreviewed(cluster_id: UUID, _threshold: float) -> RuleResult:
    rows = BreakGlass.objects.filter(rollout__cluster=cluster_id).select_related("rollout", "person")
    mend = "Two approvers other than its starter review it on its page."
    return RuleResult(
        [
            _condition(row.rollout, f"{row.person} started it by break-glass; its review is overdue.", mend)
            for row in rows.order_by("review_by", "pk").overdue()
        ]
    )


def _condition(rollout: Rollout, sentence: str, mend: str) -> AlertCondition:
    link = reverse("jobs:rollout", args=[rollout.number])
    return AlertCondition(SubjectKind.ROLLOUT, str(rollout.pk), str(rollout), sentence, mend=mend, link=link)
