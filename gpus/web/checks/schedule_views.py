"""Pages that add, change and delete a schedule of checks.

gpus/check_schedule.html  schedule, title, form
"""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from clusters.web.forms import add_errors
from common.errors import Refusal
from common.requests import UserRequest, posted_version
from gpus.models import CheckSchedule
from gpus.services.checks import schedules
from gpus.web.checks.forms import ScheduleChangeForm, ScheduleForm
from gpus.web.checks.views import with_schedule_form


@require_POST
@login_required
def add(request: UserRequest) -> HttpResponse:
    schedules.require_change_anywhere(request.user)
    form = ScheduleForm(request.POST, user=request.user)
    if not form.is_valid():
        return with_schedule_form(request, form, status=422)
    try:
        row = schedules.add(**form.given(), by=request.user)
    except Refusal as refusal:
        add_errors(form, refusal)
        return with_schedule_form(request, form, status=refusal.status)
    messages.success(request, f"{schedules.title(row)} repeats on idle nodes of {row.cluster}.")
    return redirect("gpus:checks")


@require_http_methods(["GET", "POST"])
@login_required
def change(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(schedules.visible_to(request.user), pk=pk)
    schedules.require_change(request.user, row.cluster)
    if request.method == "GET":
        return _page(request, row, ScheduleChangeForm(initial={"every_days": row.every_days, "at_once": row.at_once}))
    form = ScheduleChangeForm(request.POST)
    if not form.is_valid():
        return _page(request, row, form, status=422)
    try:
        schedules.change(row, **form.cleaned_data, version=posted_version(request), by=request.user)
    except Refusal as refusal:
        add_errors(form, refusal)
        row.refresh_from_db()
        return _page(request, row, form, status=refusal.status)
    messages.success(request, f"The schedule of {schedules.title(row)} in {row.cluster} is saved.")
    return redirect("gpus:checks")


@require_POST
@login_required
def remove(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(schedules.visible_to(request.user), pk=pk)
    title = schedules.title(row)
    schedules.remove(row, version=posted_version(request), by=request.user)
    messages.success(request, f"{title} does not repeat in {row.cluster} any more.")
    return redirect("gpus:checks")


def _page(request: UserRequest, row: CheckSchedule, form: ScheduleChangeForm, status: int = 200) -> HttpResponse:
    context = {"schedule": row, "title": schedules.title(row), "form": form}
    return render(request, "gpus/check_schedule.html", context, status=status)
