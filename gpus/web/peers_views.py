"""Nodes that are non-compliant and slower than their peers, as a list and as a file.

gpus/slower.html    page (of pace_pages.entry), grid, compared, few, both, counts, cells, filters, asked, is_filtered,
                    until, cluster_names, query: what links to a cell keep
gpus/_pace.html     panel: pace_pages.card
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from clusters.reports.selectors import clusters_visible_to
from common.requests import UserRequest
from compliance.reports import exports, filters
from gpus.peers import reports
from gpus.peers.reports import PaceFilter

ROWS = 50


@require_GET
@login_required
def slower(request: UserRequest) -> HttpResponse:
    """Filters live in the URL; a wrong one is shown and narrows nothing. The grid counts what other filters leave."""
    everything = reports.rows(request.user)
    filterset = PaceFilter(request.GET, queryset=everything)
    others = request.GET.copy()
    for name in ("cell", "page"):
        others.pop(name, None)
    counts = reports.count(PaceFilter(others, queryset=everything).qs)
    paginator: Paginator[Any] = Paginator(reports.worst_first(filterset.qs).values_list("pk", flat=True), ROWS)
    page = paginator.get_page(request.GET.get("page"))
    whole = reports.whole(request.user).in_bulk(list(page))
    entries = [reports.entry(whole[pk]) for pk in page if pk in whole]
    page.object_list = reports.mended(entries)
    params = {**{key: request.GET.get(key, "") for key in filterset.filters}, "cell": request.GET.getlist("cell")}
    context = {
        "page": page,
        "counts": counts,
        "total": sum(counts.values()),
        **reports.grid(counts),
        "cells": [(name, word, counts[name]) for name, word in reports.CELLS.items()],
        "query": others.urlencode(),
        "filters": filterset,
        "asked": params,
        "is_filtered": any(value for key, value in request.GET.items() if key != "page"),
        "until": reports.until(request.user),
        "cluster_names": clusters_visible_to(request.user).values_list("name", flat=True),
    }
    return render(request, "gpus/slower.html", context)


@require_GET
@login_required
def live(request: UserRequest) -> HttpResponse:
    """The part that pages of GPUs and of a cluster ask for: of one cluster by its name, or of all."""
    name = request.GET.get("cluster", "")
    within, query = (Q(cluster__name=name), urlencode({"cluster": name})) if name else (Q(), "")
    return render(request, "gpus/_pace.html", {"panel": reports.card(request.user, within=within, query=query)})


@require_GET
@login_required
def export(request: UserRequest, form: str) -> HttpResponseBase:
    """The whole list under the same filters. A wrong filter is refused: ignored, it would widen the file."""
    chosen = filters.strictly(PaceFilter, request.GET, reports.whole(request.user))
    return exports.answer("slower", chosen, form, reports.FILE)
