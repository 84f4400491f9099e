"""Forecast of the study of a plan, as a part of its page.

gpus/_forecast.html     reports.of_forecast(): forecast, lines, primary, arms
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from common.requests import UserRequest
from gpus.effects import planned, reports
from jobs.reports import selectors


@require_GET
@login_required
def forecast(request: UserRequest, number: int) -> HttpResponse:
    plan = get_object_or_404(selectors.visible_plans(request.user), number=number)
    return render(request, "gpus/_forecast.html", reports.of_forecast(planned.of_plan(plan)))
