"""Page of a plan that is being made. It leads to the plan once that is there."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from common.requests import UserRequest
from jobs.models import PlanRequest
from jobs.planning import node_rows
from jobs.reports import selectors

PHASES = {
    node_rows.READING: "Reading what the nodes run",
    node_rows.COMPARING: "Comparing each node with the revision",
    node_rows.CIRCUMSTANCES: "Reading pods and components",
    node_rows.STORING: "Storing the plan",
}


@require_GET
@login_required
def plan_request(request: UserRequest, pk: UUID) -> HttpResponse:
    row = get_object_or_404(selectors.visible_plan_requests(request.user), pk=pk)
    if row.plan is not None:
        return redirect("jobs:plan", row.plan.number)
    return render(request, "jobs/plan_request.html", _context(row))


@require_GET
@login_required
def plan_request_live(request: UserRequest, pk: UUID) -> HttpResponse:
    """The part that changes, for polling; once the plan is there, htmx goes to it."""
    row = get_object_or_404(selectors.visible_plan_requests(request.user), pk=pk)
    answer = render(request, "jobs/_plan_request.html", _context(row))
    if row.plan is not None:
        answer["HX-Redirect"] = reverse("jobs:plan", args=[row.plan.number])
    return answer


def _context(row: PlanRequest) -> dict[str, Any]:
    at = list(PHASES).index(row.phase) if row.phase in PHASES else -1
    steps = [
        (text, "done" if place < at else "now" if place == at else "") for place, text in enumerate(PHASES.values())
    ]
    errors = [(name, text) for name, texts in (row.error or {}).get("fields", {}).items() for text in texts]
    return {"row": row, "phases": steps, "errors": errors}
