"""Alert rules of rollouts and fleet runs, as `notices` evaluates them: those that continue only through a person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.urls import reverse

from accounts.permissions import may
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind
from common.clock import now
from jobs.approvals import rings
from jobs.approvals.rings import Member, MemberState, Ring
from jobs.engine import deadlines
from jobs.models import BreakGlass, FleetRun, Plan, Rollout, Step

STOPPED, REFUSED = "rollout-stopped", "rollout-credential-refused"
UNREVIEWED = "break-glass-overdue"
STUCK = "fleet-run-stuck"


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
    yield AlertRule(
        STUCK,
        "Fleet run does not continue by itself",
        "In a ring of a running fleet run a plan of this cluster failed or will never start, this cluster's nodes are "
        "not well after the soak, or the person in whose name plans start can no longer start rollouts here{lasting}.",
        Severity.WARNING,
        stuck,
        opens_after=timedelta(minutes=10),
        order=72,
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


def stuck(cluster_id: UUID, _threshold: float) -> RuleResult:
    """Return running fleet runs that this cluster keeps from continuing. Three or four queries each, of which there are
    few."""
    runs = FleetRun.objects.filter(status=FleetRun.Status.RUNNING, plans__cluster=cluster_id).distinct()
    conditions = []
    for run in runs.select_related("started_by").order_by("number"):
        if sentence := _obstacle(run, cluster_id):
            link = reverse("jobs:fleet_run", args=[run.number])
            mend = (
                "On its page: retry or revert what failed, leave the plan out, open the ring, or hold and release it."
            )
            conditions.append(
                AlertCondition(SubjectKind.FLEET_RUN, str(run.pk), str(run), sentence, mend=mend, link=link)
            )
    return RuleResult(conditions)


def _obstacle(run: FleetRun, cluster_id: UUID) -> str:
    """Explain, in a sentence, what of this cluster only a person can settle; empty: nothing.

    A soak, a review and a rollout in progress end without one.
    """
    there = rings.rings_of(run)
    ahead = next((ring.number for ring in there if ring.unfinished), len(there))
    for ring in there[:ahead]:
        for member in _part(ring, cluster_id).members:
            if member.state in (MemberState.BAD, MemberState.LOST):
                return f"{ring}: {member.obstacle}"
    for ring in there[run.waived : ahead - 1]:
        until = ring.soaked_at
        if until and until <= now() and (reason := rings.unhealthy(_part(ring, cluster_id))):
            return f"{ring}, which has finished: {reason}"
    waits = [member for member in _part(there[ahead - 1], cluster_id).members if _waits_for_start(member)]
    if waits and not (run.started_by and may(run.started_by, "operator", waits[0].plan.cluster.scopes)):
        return f"{waits[0].plan} would start in the name of an account that can no longer start rollouts here."
    return ""


def _part(ring: Ring, cluster_id: UUID) -> Ring:
    return replace(ring, members=[member for member in ring.members if member.plan.cluster_id == cluster_id])


def _waits_for_start(member: Member) -> bool:
    return member.state is MemberState.WAITING and member.plan.status == Plan.Status.APPROVED


def _condition(rollout: Rollout, sentence: str, mend: str) -> AlertCondition:
    link = reverse("jobs:rollout", args=[rollout.number])
    return AlertCondition(SubjectKind.ROLLOUT, str(rollout.pk), str(rollout), sentence, mend=mend, link=link)
