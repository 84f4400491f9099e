"""Rows that a person may see, and those that wait for that person, for pages and the API alike."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Case, Exists, OuterRef, Q, QuerySet, Subquery, When

from accounts.models import User
from accounts.permissions import restrict, visible_scopes
from clusters.models import Cluster
from common.clock import now
from jobs.approvals import rules
from jobs.models import Approval, ApprovalRule, FleetRun, Freeze, Plan, PlanQuerySet, PlanRequest, Rollout
from profiles.models import Revision

SHOWN_WAITING = 20


def visible_plans(user: User) -> PlanQuerySet:
    related = ("cluster", "pool__cluster", "revision__profile", "created_by", "requested_by", "superseded_by",
               "fleet_run")  # fmt: skip
    return restrict(Plan.objects.select_related(*related), user)


def visible_fleet_runs(user: User) -> QuerySet[FleetRun]:
    """Those with a plan of a cluster that this person may see; of their other plans only the number is shown."""
    rows = FleetRun.objects.select_related("created_by", "started_by")
    if "*" in visible_scopes(user):
        return rows  # those whose clusters were disconnected, too
    return rows.filter(Exists(restrict(Plan.objects.filter(fleet_run=OuterRef("pk")), user)))


def visible_plan_requests(user: User) -> QuerySet[PlanRequest]:
    related = ("cluster", "pool", "revision__profile", "requested_by", "plan")
    return restrict(PlanRequest.objects.select_related(*related), user)


def visible_rollouts(user: User) -> QuerySet[Rollout]:
    related = ("cluster", "plan__pool__cluster", "plan__revision__profile", "started_by", "glass__person")
    return restrict(Rollout.objects.with_state().select_related(*related), user)


def visible_freezes(user: User) -> QuerySet[Freeze]:
    """Those of clusters that this person may see, and those of all clusters, lifted and past ones too."""
    clusters = restrict(Cluster.objects.all(), user, prefix="")
    rows = Freeze.objects.filter(Q(cluster=None) | Q(cluster__in=clusters))
    return rows.select_related("cluster", "created_by").order_by("-created_at", "-pk")


def visible_rules(user: User) -> QuerySet[ApprovalRule]:
    """Those of all clusters, and those of one that this person may see."""
    clusters = restrict(Cluster.objects.all(), user, prefix="")
    return ApprovalRule.objects.filter(Q(cluster=None) | Q(cluster__in=clusters)).select_related(
        "cluster", "changed_by"
    )


def open_plans_by_rule(user: User) -> dict[int, list[Plan]]:
    """Return, by rule, the undecided plans visible to this person that it applies to now."""
    rows = list(ApprovalRule.objects.all())
    plans = list(visible_plans(user).open().in_time()[:SHOWN_WAITING])
    facts = rules.facts_of(plans, rows)
    return {row.pk: [plan for plan in plans if rules.rule_fits(row, facts[plan.pk])] for row in rows}


def active_freezes(user: User) -> QuerySet[Freeze]:
    return visible_freezes(user).filter(Q(until=None) | Q(until__gt=now()), lifted_at=None)


def to_review(user: User) -> QuerySet[Plan]:
    """Plans in review on which this person may give a verdict and has none: reason_not_to_judge, as a query."""
    if user.is_service or not visible_scopes(user, "approver"):
        return Plan.objects.none()  # most people; every page counts these, and writing the query takes a millisecond
    own = Approval.objects.filter(
        plan=OuterRef("pk"), digest=OuterRef("digest"), round=OuterRef("round"), person=user
    ).order_by("-at", "-pk")
    waiting = restrict(restrict(Plan.objects.waiting(), user), user, role="approver")
    waiting = waiting.exclude(Q(created_by=user) | Q(requested_by=user)).exclude(
        Q(revision__in=Revision.objects.filter(authors=user)) | Q(authorship__has_key=str(user.pk))
    )
    if not user.is_superuser:
        waiting = _given_before(waiting, user)
    open_to = Q(own=None) | Q(own=Approval.Verdict.RETRACT)
    waiting = waiting.annotate(own=Subquery(own.values("verdict")[:1])).filter(open_to)
    return waiting.select_related("cluster", "pool__cluster", "revision__profile", "requested_by")


def _given_before(waiting: PlanQuerySet, user: User) -> PlanQuerySet:
    """Those for which a role of approver was given before approval was asked for: by scope, as each was given."""
    there = Q()
    for (role, scope), at in user.granted.items():
        if role != "approver":
            continue
        place = Q()
        if scope.startswith("env:"):
            place = Q(cluster__environment=scope.removeprefix("env:"))
        elif scope.startswith("cluster:"):
            place = Q(cluster=UUID(scope.removeprefix("cluster:")))
        there |= place & Q(requested_at__gte=at)
    return waiting.filter(there) if there else waiting.none()


def own_plans(user: User) -> PlanQuerySet:
    """Plans that this person made or asked for; what they must answer first."""
    answer = Case(When(status=Plan.Status.CHANGES, then=0), default=1)
    return visible_plans(user).filter(Q(created_by=user) | Q(requested_by=user)).order_by(answer, "-number")
