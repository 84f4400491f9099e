"""Lists of plans, of rollouts, of one rollout's nodes, and approvals. What they show and how they are narrowed is in
jobs.web.filters, which the API reads too.

Contexts:
plans.html          listing (of Plan with node_count, pool_nodes, seconds), statuses, clusters, saved, query
rollouts.html       the same of Rollout
rollout_nodes.html  rollout, listing (of Step with state), rows [(step, what it does now)], states, last_batch
approvals.html      view (review | mine), counts {view: n}, to_review or listing, clusters
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from accounts import filters as saved
from accounts.permissions import restrict
from clusters.models import Cluster
from common import listing, look
from common.requests import UserRequest
from jobs.forecast.strategy import Strategy
from jobs.models import Plan, Rollout
from jobs.reports import rollout_page, selectors
from jobs.web import filters

SHOWN_REVIEWS = 20


@require_GET
@login_required
def plans(request: UserRequest) -> HttpResponse:
    rows = filters.sortable_plans(selectors.visible_plans(request.user))
    plan_list = listing.read(request, rows, filters.PlanFilter, filters.PLAN_ORDERS, chips="status")
    context = {"listing": plan_list, "statuses": Plan.Status.choices, **_list_context(request, "plans", plan_list)}
    return render(request, "jobs/plans.html", context)


@require_GET
@login_required
def rollouts(request: UserRequest) -> HttpResponse:
    rows = filters.sortable_rollouts(selectors.visible_rollouts(request.user))
    rollout_list = listing.read(request, rows, filters.RolloutFilter, filters.ROLLOUT_ORDERS, chips="status")
    context = {
        "listing": rollout_list,
        "statuses": Rollout.Status.choices,
        **_list_context(request, "rollouts", rollout_list),
    }
    return render(request, "jobs/rollouts.html", context)


@require_GET
@login_required
def rollout_nodes(request: UserRequest, number: int) -> HttpResponse:
    """Every node of a rollout, the failing ones first."""
    row = get_object_or_404(selectors.visible_rollouts(request.user), number=number)
    steps = filters.sortable_steps(row.steps.of_nodes())
    step_list = listing.read(request, steps, filters.StepFilter, filters.STEP_ORDERS, chips="state")
    soak = Strategy.from_json(row.plan.strategy).soak_seconds
    last = row.steps.order_by("-batch").values_list("batch", flat=True).first()
    context = {
        "rollout": row,
        "listing": step_list,
        "states": [(name, look.appearance("operation", name).word) for name in filters.STEP_STATES],
        "last_batch": last or 0,
        "rows": [(step, rollout_page.activity_text(step, soak)) for step in step_list.page.rows],
    }
    return render(request, "jobs/rollout_nodes.html", context)


@require_GET
@login_required
def approvals(request: UserRequest) -> HttpResponse:
    """Show what waits for this person's verdict, or what this person asked for."""
    user = request.user
    view = "mine" if request.GET.get("view") == "mine" else "review"
    waiting, own = selectors.to_review(user), selectors.own_plans(user)
    plan_list: listing.Listing[Plan]
    if view == "mine":
        rows = filters.sortable_plans(own)
        plan_list = listing.read(request, rows, filters.PlanFilter, filters.MINE_ORDERS, chips="status")
    else:
        rows = filters.sortable_plans(waiting).defer(None)
        plan_list = listing.read(request, rows, filters.PlanFilter, filters.REVIEW_ORDERS, size=SHOWN_REVIEWS)
    context = {
        "view": view,
        "counts": {"review": waiting.count(), "mine": own.count()},
        "listing": plan_list,
        "to_review": plan_list.page.rows if view == "review" else [],
        "statuses": Plan.Status.choices if view == "mine" else [],
        "review_orders": filters.REVIEW_CHOICES,
        "clusters": _clusters(request),
    }
    return render(request, "jobs/approvals.html", context)


def _list_context(request: UserRequest, page: str, shown_list: listing.Listing[Any]) -> dict[str, Any]:
    return {"clusters": _clusters(request), "saved": saved.of_page(page, request.user), "query": shown_list.query}


def _clusters(request: UserRequest) -> list[str]:
    return list(restrict(Cluster.objects.order_by("name"), request.user, prefix="").values_list("name", flat=True))
