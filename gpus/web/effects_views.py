"""Parts of the pages of plans and rollouts that are asked for later: the forecast of a study, and load times.

gpus/_forecast.html        reports.of_forecast(): forecast, lines, primary, arms
gpus/_rollout_starts.html  starts (rollouts.of(), or None)
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from common.requests import UserRequest
from gpus.effects import planned, reports
from gpus.reports.starts import rollouts
from jobs.reports import selectors


@require_GET
@login_required
def forecast(request: UserRequest, number: int) -> HttpResponse:
    plan = get_object_or_404(selectors.visible_plans(request.user), number=number)
    return render(request, "gpus/_forecast.html", reports.of_forecast(planned.of_plan(plan)))


@require_GET
@login_required
def starts(request: UserRequest, number: int) -> HttpResponse:
    rollout = get_object_or_404(selectors.visible_rollouts(request.user), number=number)
    return render(request, "gpus/_rollout_starts.html", {"starts": rollouts.of(rollout)})
