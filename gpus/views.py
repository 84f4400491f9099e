"""Pages of GPUs. What each shows is gathered in `gpus.pages`.

gpus/fleet.html     pages.fleet()
gpus/cluster.html   pages.cluster(), page (of its nodes) for the table behind the heatmap, here (what an address keeps)
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from clusters.selectors import clusters_visible_to
from common.requests import UserRequest
from gpus import pages


@require_GET
@login_required
def fleet(request: UserRequest) -> HttpResponse:
    window, by = request.GET.get("window", "24h"), request.GET.get("by", "cluster")
    return render(request, "gpus/fleet.html", pages.fleet(request.user, window, by))


@require_GET
@login_required
def cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    found = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    asked = request.GET.get("metric", "busy")
    metric = asked if asked in pages.METRICS else "busy"
    window, by = request.GET.get("window", "24h"), request.GET.get("by", "namespace")
    context = pages.cluster(request.user, found, metric, window, by)
    page = Paginator(context["nodes"], pages.ROWS).get_page(request.GET.get("page"))
    context["rows"] = [
        (node, [(gpu, pages.figure(gpu, metric), pages.step(gpu, metric)) for gpu in node.gpus]) for node in page
    ]
    return render(request, "gpus/cluster.html", context | {"page": page, "here": f"metric={metric}&"})
