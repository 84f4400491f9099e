"""Pages of queues over time.

gpus/queues.html     picker (gpus.web.range_picker.RangePicker), report (gpus.capacity.queue_report.Report), chart, rows
                     [Point] of the table behind it, names of clusters, cluster and queue as asked, lines (the first
                     MOST_LINES), more_lines, query: what links keep
gpus/_reclaim.html   reclaimed (gpus.capacity.reclaimed.Reclaimed), starts and stays, of each the first MOST_LINES
"""

from __future__ import annotations

from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from clusters.reports.selectors import clusters_visible_to
from common.requests import UserRequest
from compliance.reports import exports, filters
from gpus.capacity import queue_chart, queue_report, reclaimed, wait_lists
from gpus.reports import ranges
from gpus.web import range_picker

MOST_LINES = 50


@require_GET
@login_required
def queues(request: UserRequest) -> HttpResponse:
    cluster, queue = (request.GET.get(name, "").strip()[:253] for name in ("cluster", "queue"))
    kept = [(name, value) for name, value in (("cluster", cluster), ("queue", queue)) if value]
    picker = range_picker.read(request.GET, ranges.BANDS, anchor="queues", kept=kept)
    report = queue_report.of(request.user, picker.range, cluster=cluster, queue=queue)
    context = {
        "picker": picker,
        "report": report,
        "chart": queue_chart.draw(report),
        "rows": report.points[-ranges.MOST_ROWS :],
        "names": [row.name for row in report.clusters],
        "cluster": cluster,
        "queue": queue,
        "lines": report.lines[:MOST_LINES],
        "more_lines": max(0, len(report.lines) - MOST_LINES),
        "query": urlencode(kept),
    }
    return render(request, "gpus/queues.html", context, status=picker.status)


@require_GET
@login_required
def reclaim(request: UserRequest, pk: UUID) -> HttpResponse:
    """The part for one cluster, which is made when it is scrolled into view."""
    row = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    answer = reclaimed.of(request.user, row)
    context = {"reclaimed": answer, "starts": answer.starts[:MOST_LINES], "stays": answer.not_started[:MOST_LINES]}
    return render(request, "gpus/_reclaim.html", context)


@require_GET
@login_required
def export(request: UserRequest, form: str) -> HttpResponseBase:
    """All waits under the filters of the list. A wrong filter is refused: ignored, it would widen the file."""
    chosen = filters.strictly(wait_lists.WaitFilter, request.GET, wait_lists.visible_to(request.user))
    return exports.answer("gpu-waits", chosen, form, wait_lists.FILE)
