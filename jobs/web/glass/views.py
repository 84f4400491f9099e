"""Break-glass from a browser: the start of a plan without its approvals, and the reviews that follow."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from accounts.access import freshness
from common.errors import Refusal
from common.requests import UserRequest
from jobs import tasks
from jobs.approvals import glass_reviews
from jobs.reports import rollout_page, selectors
from jobs.rollouts import glass_start
from jobs.web import outcome_messages, views


@views.require_safe_or_post
@login_required
def plan_break_glass(request: UserRequest, number: int) -> HttpResponse:
    """POST starts the plan; a refusal shows its page again, with what was typed."""
    if request.method != "POST":
        return redirect("jobs:plan", number)
    row = get_object_or_404(selectors.visible_plans(request.user), number=number)
    try:
        rollout = glass_start.start(
            row,
            by=request.user,
            digest=request.POST.get("digest", ""),
            reason=request.POST.get("reason", ""),
            confirmation=request.POST.get("confirmation", ""),
            proved_at=freshness.proved_at(request),
        )
    except Refusal as refusal:
        return views.plan_refused(request, number, "break-glass", refusal)
    tasks.wake(rollout.pk)
    messages.success(request, outcome_messages.glass_broken(rollout))
    return redirect("jobs:rollout", rollout.number)


@views.require_safe_or_post
@login_required
def rollout_review(request: UserRequest, number: int) -> HttpResponse:
    """POST stores a review of a start by break-glass; a refusal shows the page again, with what was typed."""
    if request.method != "POST":
        return redirect("jobs:rollout", number)
    row = get_object_or_404(selectors.visible_rollouts(request.user), number=number)
    verdict, text = request.POST.get("verdict", ""), request.POST.get("text", "")
    try:
        proved_at = freshness.proved_at(request)
        glass_reviews.review(row, by=request.user, verdict=verdict, text=text, proved_at=proved_at)
    except Refusal as refusal:
        if not refusal.fields:
            messages.error(request, str(refusal))
        typed = {"verdict": verdict, "text": text}
        context = rollout_page.rollout_page(row, request.user) | {"typed": typed, "wrong": refusal.fields}
        return render(request, "jobs/rollout.html", context, status=refusal.status)
    messages.success(request, outcome_messages.glass_reviewed(row))
    return redirect("jobs:rollout", number)
