"""Start times of pods with GPUs, on a page of their own.

gpus/starts.html    report (gpus.reports.starts.report.Report), query, days, groups, reasons [(words, reason, number)],
                    errors
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from clusters.models import PodStart
from common.errors import Invalid
from common.requests import UserRequest
from gpus.reports.starts import report as start_times


@require_GET
@login_required
def starts(request: UserRequest) -> HttpResponse:
    """Filters live in the URL; a wrong one is named, and the default is shown."""
    errors: list[tuple[str, str]] = []
    try:
        query = start_times.parse(request.GET.dict())
    except Invalid as invalid:
        query = start_times.Query(request.GET.get("cluster", "").strip()[:253])
        errors = [(name.capitalize(), " ".join(reasons)) for name, reasons in invalid.fields.items()]
    report = start_times.of(request.user, query)
    context = {
        "report": report,
        "query": query,
        "days": [(days, "1 day" if days == 1 else f"{days} days") for days in start_times.DAYS],
        "groups": list(start_times.GROUPS.items()),
        "group_words": start_times.GROUPS[query.by],
        "reasons": [(PodStart.Outcome(outcome).label, reason, number) for outcome, reason, number in report.reasons],
        "errors": errors,
    }
    return render(request, "gpus/starts.html", context, status=Invalid.status if errors else 200)
