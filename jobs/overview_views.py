"""The first page: overview.html gets jobs.overview.overview()."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from common.requests import UserRequest
from jobs.overview import overview as seen_by


@require_GET
@login_required
def overview(request: UserRequest) -> HttpResponse:
    return render(request, "jobs/overview.html", seen_by(request.user))
