"""Pages of calendar rules, and the verbs on them.

Contexts:
windows.html    rules [(rule, target, times, next occurrences)], form (CalendarRuleForm), preview, why_not,
                file_form (CalendarFileForm)
window.html     rule, form, about, times, occurrences, preview, why_not
"""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from common.errors import Refusal
from common.requests import UserRequest, posted_version
from jobs.calendars import rulebook
from jobs.models import CalendarRule
from jobs.reports import calendars
from jobs.reports.calendars import OccurrenceShown
from jobs.web.calendars.forms import CalendarFileForm, CalendarRuleForm

require_safe_or_post = require_http_methods(["GET", "HEAD", "POST"])
LISTED = 2
"""Occurrences of each rule in the list: the present one or the next, and the one after it."""


@require_safe_or_post
@login_required
def window_list(request: UserRequest) -> HttpResponse:
    form = CalendarRuleForm(request.POST if request.method == "POST" else None, user=request.user)
    preview: list[OccurrenceShown] | None = None
    if request.method == "POST" and form.is_valid():
        try:
            if "preview" in request.POST:
                preview = calendars.next_occurrences(rulebook.check(form.wishes()))
            else:
                row = rulebook.create(by=request.user, **form.wishes())
                messages.success(request, f"The {row.kind} “{row.name}” applies from now on.")
                return redirect("jobs:windows")
        except Refusal as refusal:
            form.refuse(refusal)
    return list_page(request, form, preview=preview)


def list_page(
    request: UserRequest,
    form: CalendarRuleForm,
    *,
    preview: list[OccurrenceShown] | None = None,
    file_form: CalendarFileForm | None = None,
) -> HttpResponse:
    """Render the list with its forms, as they were sent."""
    rows = calendars.visible_calendar_rules(request.user)
    file_form = file_form or CalendarFileForm(user=request.user)
    context = {
        "rules": [
            (
                row,
                calendars.describe_target(row),
                calendars.describe_times(row),
                calendars.next_occurrences(row, LISTED),
            )
            for row in rows
        ],
        "form": form,
        "file_form": file_form,
        "preview": preview,
        "why_not": rulebook.reason_not_to_change(request.user),
    }
    return render(request, "jobs/windows.html", context, status=422 if form.errors or file_form.errors else 200)


@require_safe_or_post
@login_required
def window(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(calendars.visible_calendar_rules(request.user), pk=pk)
    about, times, occurrences = _described(row)
    form = CalendarRuleForm(
        request.POST if request.method == "POST" else None,
        user=request.user,
        initial=CalendarRuleForm.initial_of(row),
    )
    preview: list[OccurrenceShown] | None = None
    if request.method == "POST" and form.is_valid():
        try:
            if "preview" in request.POST:
                preview = calendars.next_occurrences(rulebook.check(form.wishes()))
            else:
                version = form.cleaned_data["version"] or 0
                rulebook.change(row, by=request.user, version=version, **form.wishes())
                messages.success(request, f"The {row.kind} “{row.name}” was changed.")
                return redirect("jobs:window", pk)
        except Refusal as refusal:
            form.refuse(refusal)
    context = {
        "rule": row,
        "about": about,
        "times": times,
        "occurrences": occurrences,
        "form": form,
        "preview": preview,
        "why_not": rulebook.reason_not_to_change(request.user),
    }
    return render(request, "jobs/window.html", context, status=422 if form.errors else 200)


def _described(row: CalendarRule) -> tuple[str, str, list[OccurrenceShown]]:
    return calendars.describe_target(row), calendars.describe_times(row), calendars.next_occurrences(row)


@require_safe_or_post
@login_required
def window_end(request: UserRequest, pk: int) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:window", pk)
    row = get_object_or_404(calendars.visible_calendar_rules(request.user), pk=pk)
    try:
        rulebook.end(row, by=request.user, version=posted_version(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect("jobs:window", pk)
    messages.success(request, f"The {row.kind} “{row.name}” has ended and no longer applies.")
    return redirect("jobs:windows")
