"""Import and export of calendar rules as an iCalendar file, from the page of windows."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET

from common.errors import Refusal
from common.requests import UserRequest
from jobs.calendars import calendar_imports, calendar_lines
from jobs.reports import calendars
from jobs.web.calendars.file_answers import calendar_file_answer
from jobs.web.calendars.forms import CalendarFileForm, CalendarRuleForm
from jobs.web.calendars.views import list_page, require_safe_or_post


@require_safe_or_post
@login_required
def window_import(request: UserRequest) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:windows")
    form = CalendarFileForm(request.POST, request.FILES, user=request.user)
    if form.is_valid():
        fields = dict(form.cleaned_data)
        content = fields.pop("file").read(calendar_lines.MOST_BYTES + 1)
        try:
            result = calendar_imports.import_file(content, by=request.user, **fields)
        except Refusal as refusal:
            form.refuse(refusal)
        else:
            count = len(result.created)
            messages.success(request, f"{count} rule{'' if count == 1 else 's'} imported: they apply from now on.")
            for refused in result.refused[: calendar_imports.NAMED]:
                messages.warning(request, f"Skipped. {refused}")
            return redirect("jobs:windows")
    return list_page(request, CalendarRuleForm(user=request.user), file_form=form)


@require_GET
@login_required
def window_export(request: UserRequest) -> HttpResponse:
    return calendar_file_answer(calendars.visible_calendar_rules(request.user))
