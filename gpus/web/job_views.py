"""Pages of jobs that hold or held GPUs.

gpus/jobs.html    listing (of GpuJob, as gpus.peers.lives.selectors.jobs), states, clusters,
                  rows [(job, GPU-hours, active percent or None)]
gpus/job.html     report (gpus.peers.lives.reports.JobReport), job, ranks (the first MOST_ROWS), nodes, more_ranks,
                  more_nodes, may_serve, may_train, starts [(PodStart, words of each part)]
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET

from clusters.models import GpuJob, PodStart
from clusters.reports.selectors import clusters_visible_to
from common import listing, look
from common.requests import UserRequest
from gpus.peers.lives import reports, selectors
from gpus.peers.lives.ranks import Rank
from gpus.reports.inference.deployments import BATCH
from gpus.reports.starts import figures
from gpus.reports.starts import selectors as starts

MOST_ROWS = 100
REPLICAS = frozenset({"Deployment", "ReplicaSet", "DaemonSet"})
"""Kinds whose pods serve, or do what each node needs: their pages have no part on training."""


@require_GET
@login_required
def jobs(request: UserRequest) -> HttpResponse:
    rows = selectors.jobs(request.user).defer("pods", "roles")
    job_list = listing.read(request, rows, selectors.JobFilter, selectors.ORDERS, chips="state")
    context = {
        "listing": job_list,
        "rows": [(row, selectors.gpu_hours(row), selectors.active_percent(row)) for row in job_list.page.rows],
        "states": [(state, look.appearance("job", state).word) for state in GpuJob.State.values],
        "clusters": clusters_visible_to(request.user).values_list("name", flat=True),
    }
    return render(request, "gpus/jobs.html", context)


@require_GET
@login_required
def job(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.jobs(request.user), pk=pk)
    report = reports.of(request.user, row)
    ranks = sorted(report.activity.ranks, key=_first)
    nodes = sorted(report.around.nodes, key=lambda place: (not place.xids, not place.drifts, place.name))
    context = {
        "report": report,
        "job": row,
        "ranks": ranks[:MOST_ROWS],
        "more_ranks": max(0, len(ranks) - MOST_ROWS),
        "nodes": nodes[:MOST_ROWS],
        "starts": [(start, *_words(start)) for start in starts.of_job(row)],
        "may_serve": row.kind not in BATCH,
        "may_train": row.kind not in REPLICAS,
        "more_nodes": max(0, report.around.nodes_count - MOST_ROWS),
    }
    return render(request, "gpus/job.html", context)


@require_GET
@login_required
def job_of(request: UserRequest, pk: UUID, key: str) -> HttpResponse:
    """Redirect to the job of this key: pods know no other name of it."""
    row = get_object_or_404(selectors.jobs(request.user).defer("pods", "roles"), cluster=pk, key=key)
    return redirect("gpus:job", row.pk)


def _words(start: PodStart) -> list[str]:
    """Return how long each part of a start took."""
    return [figures.words(seconds) for seconds in (start.queue_seconds, start.prepare_seconds, start.load_seconds)]


def _first(rank: Rank) -> tuple[bool, bool, float, str]:
    """Pods that never ran, then those that live: those that do the least first, by OFU where it is known."""
    share = next((share for share in (rank.ofu, rank.busy) if share is not None), 2.0)
    return (rank.pod.running is not None, rank.pod.ended is not None, share, rank.pod.name)
