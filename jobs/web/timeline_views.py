"""Timelines of plans and rollouts: pages, and the same over REST."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_GET

from accounts.models import User
from common.requests import UserRequest
from common.timeline import DRIFT, EDITS, ROLLOUTS, VERDICTS
from compliance.reports import timelines
from compliance.web.timeline_views import TimelineView, described
from jobs.models import Plan, Rollout
from jobs.reports.selectors import visible_plans, visible_rollouts
from jobs.reports.timeline import LOGGED


def plan_subject(user: User, pk: UUID) -> timelines.About:
    return _about_plan(get_object_or_404(visible_plans(user).select_related("rollout"), pk=pk))


def rollout_subject(user: User, pk: UUID) -> timelines.About:
    return _about_rollout(get_object_or_404(visible_rollouts(user), pk=pk))


def _about_plan(plan: Plan) -> timelines.About:
    rollout: Any = getattr(plan, "rollout", None)
    targets = [f"plan:{plan.pk}", *([f"rollout:{rollout.pk}"] if rollout else [])]
    crumbs = [("Plans", reverse("jobs:plans"))]
    what = (EDITS, VERDICTS, ROLLOUTS)
    return timelines.About("plan", plan, str(plan), reverse("jobs:plan", args=[plan.number]), what, targets, (), crumbs)


def _about_rollout(row: Rollout) -> timelines.About:
    """Describe the rollout's timeline, with how its plan came to be; what its own log tells is not told twice."""
    targets = [f"rollout:{row.pk}", f"plan:{row.plan_id}"]
    crumbs = [("Rollouts", reverse("jobs:rollouts"))]
    what = (EDITS, VERDICTS, ROLLOUTS, DRIFT)
    back = reverse("jobs:rollout", args=[row.number])
    return timelines.About("rollout", row, str(row), back, what, targets, LOGGED, crumbs)


@require_GET
@login_required
def plan(request: UserRequest, number: int) -> HttpResponse:
    row = get_object_or_404(visible_plans(request.user).select_related("rollout"), number=number)
    return timelines.show(request, _about_plan(row))


@require_GET
@login_required
def rollout(request: UserRequest, number: int) -> HttpResponse:
    return timelines.show(request, _about_rollout(get_object_or_404(visible_rollouts(request.user), number=number)))


@described("plans_timeline")
class PlanTimeline(TimelineView):
    def about(self, user: User, key: Any) -> timelines.About:
        return plan_subject(user, key)


@described("rollouts_timeline")
class RolloutTimeline(TimelineView):
    def about(self, user: User, key: Any) -> timelines.About:
        return rollout_subject(user, key)
