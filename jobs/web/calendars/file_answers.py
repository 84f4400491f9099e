"""Answer that is an iCalendar file."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpResponse

from jobs.calendars import calendar_export
from jobs.models import CalendarRule


def calendar_file_answer(rows: Iterable[CalendarRule]) -> HttpResponse:
    answer = HttpResponse(calendar_export.export(rows), content_type="text/calendar; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="setpoint-windows.ics"'
    return answer
