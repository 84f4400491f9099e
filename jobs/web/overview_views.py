"""The first page: overview.html gets jobs.reports.overview.overview(), and panels of rooms above."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from common import hooks
from common.requests import UserRequest
from jobs.reports.overview import overview as seen_by


@require_GET
@login_required
def overview(request: UserRequest) -> HttpResponse:
    panels = sorted(hooks.overview_panels(request), key=lambda panel: panel.order)
    return render(request, "jobs/overview.html", seen_by(request.user) | {"panels": panels})
