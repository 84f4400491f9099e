"""Pages of GPUs. What each shows is gathered in `gpus.web.context`.

gpus/fleet.html     pages.fleet()
gpus/fit.html       fit.page()
gpus/cluster.html   pages.cluster(); here (what an address keeps); page and rows [(Part, [(Gpu, figure, step)])] of the
                    table behind the heatmap
"""

from __future__ import annotations

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
from gpus.reports import heatmap
from gpus.web import context as pages


@require_GET
@login_required
def fleet(request: UserRequest) -> HttpResponse:
    window, by = request.GET.get("window", "24h"), request.GET.get("by", "cluster")
    return render(request, "gpus/fleet.html", pages.fleet(request.user, window, by))


@gzip_page
@require_GET
@login_required
def cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    """Packed: the numbers of 40,000 GPUs are a megabyte, and a quarter of that so."""
    row = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    query = heatmap.wish(request.GET)
    window, by = request.GET.get("window", "24h"), request.GET.get("by", "namespace")
    context = pages.cluster(request.user, row, query, window, by)
    page = Paginator(context["parts_shown"], pages.ROWS).get_page(request.GET.get("page"))
    context["rows"] = [
        (part, [(g, heatmap.figure(g, query.metric), heatmap.step(g, query.metric)) for g in part.gpus])
        for part in page
    ]
    kept = query.address()
    return render(request, "gpus/cluster.html", context | {"page": page, "here": f"{kept}&" if kept else ""})


@require_GET
@login_required
def cluster_fit(request: UserRequest, pk: UUID) -> HttpResponse:
    row = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    return render(request, "gpus/fit.html", fit.page(request.user, row))
