"""The page of active checks, and the card of a node.

gpus/checks.html        page of gpus.models.CheckRun, catalog [gpus.services.checks.reports.CatalogLine], form, filters,
                        asked, cluster_names, may_start, may_set, typed {name, image, why} of a refused image,
                        schedules [(gpus.services.checks.schedule_lines.ScheduleLine, may_change)], schedule_count,
                        schedule_form
gpus/_node_checks.html  panel: node, lines [gpus.services.checks.reports.CheckLine]
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from clusters.reports.selectors import clusters_visible_to
from clusters.web.forms import add_errors
from common.errors import Refusal
from common.requests import UserRequest
from gpus.services.checks import reports, schedule_lines, schedules, starting
from gpus.services.checks.catalog import CHECKS
from gpus.services.checks.reports import CheckRunFilter
from gpus.services.checks.schedule_lines import CheckScheduleFilter
from gpus.web.checks.forms import ScheduleForm, StartForm

ROWS = 50
MOST_SCHEDULES = 50
"""On the page; the filter of runs, and REST, lead to the others."""


@require_http_methods(["GET", "POST"])
@login_required
def checks(request: UserRequest) -> HttpResponse:
    if request.method == "GET":
        given = {name: request.GET.get(name, "") for name in ("check", "cluster", "nodes")}
        return _page(request, StartForm(initial={**given, "at_once": 1}, user=request.user))
    starting.may_start_anywhere(request.user)
    form = StartForm(request.POST, user=request.user)
    if not form.is_valid():
        return _page(request, form, status=422)
    try:
        runs = starting.start(**form.given(), by=request.user)
    except Refusal as refusal:
        add_errors(form, refusal)
        return _page(request, form, status=refusal.status)
    title = CHECKS[runs[0].check_name].title
    messages.success(request, f"{title}: {len(runs)} node{'s' if len(runs) > 1 else ''}, each once it is idle.")
    return redirect("gpus:checks")


def _page(
    request: UserRequest,
    form: StartForm,
    *,
    status: int = 200,
    typed: tuple[str, str, str] = ("", "", ""),
    schedule_form: ScheduleForm | None = None,
) -> HttpResponse:
    """`typed`: the check, an image that was refused, and why."""
    filterset = CheckRunFilter(request.GET, queryset=reports.runs(request.user))
    page = Paginator(filterset.qs, ROWS).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "rows": [(run, CHECKS.get(run.check_name)) for run in page],
        "catalog": reports.catalog(),
        "form": form,
        "filters": filterset,
        "asked": {name: request.GET.get(name, "") for name in filterset.filters},
        "checks": CHECKS.values(),
        "cluster_names": clusters_visible_to(request.user).values_list("name", flat=True),
        "may_start": starting.may_start(request.user),
        "may_set": starting.may_set(request.user),
        "typed": dict(zip(("name", "image", "why"), typed, strict=True)),
        **_schedules(request),
        "schedule_form": schedule_form or ScheduleForm(initial={"every_days": 7, "at_once": 1}, user=request.user),
    }
    return render(request, "gpus/checks.html", context, status=status)


def _schedules(request: UserRequest) -> dict[str, Any]:
    rows = CheckScheduleFilter(request.GET, queryset=schedules.visible_to(request.user)).qs
    lines = schedule_lines.lines(list(rows[:MOST_SCHEDULES]))
    return {
        "schedules": [(line, schedules.may_change(request.user, line.schedule)) for line in lines],
        "schedule_count": rows.count(),
    }


def with_schedule_form(request: UserRequest, form: ScheduleForm, *, status: int) -> HttpResponse:
    """Show the page with a schedule that was refused."""
    return _page(request, StartForm(initial={"at_once": 1}, user=request.user), status=status, schedule_form=form)


@require_POST
@login_required
def image(request: UserRequest, name: str) -> HttpResponse:
    check = starting.find(name)
    starting.may_set_image(request.user)
    text = request.POST.get("image", "")
    try:
        row = starting.set_image(name, text, by=request.user)
    except Refusal as refusal:
        form = StartForm(initial={"at_once": 1}, user=request.user)
        return _page(request, form, status=refusal.status, typed=(name, text, str(refusal)))
    messages.success(request, f"{check.title}: {row.image if row else 'turned off'}.")
    return redirect("gpus:checks")


@require_POST
@login_required
def stop(request: UserRequest, pk: UUID) -> HttpResponse:
    run = starting.stop(get_object_or_404(reports.runs(request.user), pk=pk), by=request.user)
    messages.success(request, f"The check of {run.node.name} is being stopped.")
    return redirect("gpus:checks")
