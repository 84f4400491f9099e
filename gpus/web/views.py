"""Pages of GPUs. What each shows is gathered in `gpus.web.context`.

gpus/fleet.html     pages.fleet(), picker (gpus.web.range_picker.RangePicker)
gpus/fit.html       fit.page()
gpus/cluster.html   pages.cluster(), picker; page and rows [(Part, [(Gpu, figure, step)])] of the table behind the
                    heatmap; here (what an address keeps)
"""

from __future__ import annotations

from urllib.parse import parse_qsl
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_GET

from clusters.reports.selectors import clusters_visible_to
from common.requests import UserRequest
from gpus.capacity import fit
from gpus.reports import heatmap, ranges, state_bands
from gpus.web import context as pages
from gpus.web import range_picker


@require_GET
@login_required
def fleet(request: UserRequest) -> HttpResponse:
    by = request.GET.get("by", "cluster")
    picker = range_picker.read(request.GET, ranges.BANDS, anchor="over", kept=_kept(by))
    context = pages.fleet(request.user, picker.range, by) | {"picker": picker}
    return render(request, "gpus/fleet.html", context, status=picker.status)


@gzip_page
@require_GET
@login_required
def cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    """Packed: the numbers of 40,000 GPUs are a megabyte, and a quarter of that so."""
    row = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    query = heatmap.wish(request.GET)
    by, kept = request.GET.get("by", "namespace"), query.address()
    picker = range_picker.read(request.GET, ranges.BANDS, anchor="over", kept=[*parse_qsl(kept), *_kept(by)])
    context = pages.cluster(request.user, row, query, picker.range, by) | {"picker": picker}
    page = Paginator(context["parts_shown"], pages.ROWS).get_page(request.GET.get("page"))
    context["rows"] = [
        (part, [(g, heatmap.figure(g, query.metric), heatmap.step(g, query.metric)) for g in part.gpus])
        for part in page
    ]
    context |= {"page": page, "here": f"{kept}&" if kept else ""}
    return render(request, "gpus/cluster.html", context, status=picker.status)


def _kept(by: str) -> list[tuple[str, str]]:
    return [("by", by)] if by in state_bands.PARTS else []


@require_GET
@login_required
def cluster_fit(request: UserRequest, pk: UUID) -> HttpResponse:
    row = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    return render(request, "gpus/fit.html", fit.page(request.user, row))
