"""Deployments that serve models, on a page of their own and on that of each job: read from Prometheus once shown.

gpus/inference.html      picker (gpus.web.range_picker.RangePicker), clusters, names, wanted
gpus/_inference.html     serving (gpus.reports.inference.deployments.Serving), rows [(Deployment, cells)], frontends
gpus/_job_inference.html job, serving, deployment (or None), cells, lines, frontends, windows, window
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from clusters.models import Cluster, GpuJob
from clusters.reports.selectors import clusters_visible_to
from common.requests import UserRequest
from gpus.peers.lives import selectors
from gpus.reports import ranges
from gpus.reports.inference import deployments, words
from gpus.reports.inference.deployments import Serving
from gpus.web import range_picker


@require_GET
@login_required
def inference(request: UserRequest) -> HttpResponse:
    """A part for each cluster with GPU jobs, which is read when it is scrolled into view."""
    wanted = request.GET.get("cluster", "").strip()[:253]
    kept = [("cluster", wanted)] if wanted else []
    picker = range_picker.read(request.GET, ranges.INFERENCE, anchor="serving", kept=kept)
    rows = clusters_visible_to(request.user).filter(pk__in=GpuJob.objects.order_by().values("cluster"))
    clusters: list[Cluster] = list(rows.order_by("name"))
    context = {
        "picker": picker,
        "names": [cluster.name for cluster in clusters],
        "clusters": [cluster for cluster in clusters if wanted in ("", cluster.name)],
        "wanted": wanted,
    }
    return render(request, "gpus/inference.html", context, status=picker.status)


@require_GET
@login_required
def cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    row = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    serving = deployments.of_cluster(row, ranges.INFERENCE.parse(request.GET))
    context = {
        "serving": serving,
        "rows": [
            (deployment, [*words.cells(deployment.figures), *words.gpu_cells(deployment, serving.currency)])
            for deployment in serving.deployments
        ],
        "frontends": _frontends(serving),
    }
    return render(request, "gpus/_inference.html", context)


@require_GET
@login_required
def job(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.jobs(request.user), pk=pk)
    shown = ranges.INFERENCE.parse(request.GET)
    serving = deployments.of_job(row, shown)
    deployment = serving.deployments[0] if serving.deployments else None
    context = {
        "job": row,
        "serving": serving,
        "deployment": deployment,
        "cells": words.gpu_cells(deployment, serving.currency) + words.cells(deployment.figures) if deployment else [],
        "lines": list(words.lines(serving)),
        "frontends": _frontends(serving),
        "windows": [(name, preset.words) for name, preset in ranges.INFERENCE.presets.items()],
        "window": shown.name,
    }
    return render(request, "gpus/_job_inference.html", context)


def _frontends(serving: Serving) -> list[tuple[deployments.Frontend, list[words.Cell]]]:
    return [(frontend, words.cells(frontend.figures)) for frontend in serving.frontends]
