"""All nodes of a filter at once. bulk.html: selection (or None), query, error, done, why_not {verb: reason}, pool_url.

The filter stays in the URL; the POST repeats it, with the number and the digest that the page showed.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.permissions import Role, may
from clusters import tasks
from common.errors import Invalid, Refusal
from common.requests import UserRequest
from jobs.planning import bulk
from jobs.tasks import wake_planning


@require_http_methods(["GET", "POST"])
@login_required
def nodes_bulk(request: UserRequest) -> HttpResponse:
    params = {name: value for name, value in request.GET.dict().items() if name != "page"}
    try:
        selection = bulk.select_nodes(params, request.user)
    except Refusal as refusal:
        context: dict[str, Any] = {"selection": None, "error": _refusal_text(refusal), "query": urlencode(params)}
        return render(request, "jobs/bulk.html", context, status=refusal.status)
    error, done, status = "", None, 200
    if request.method == "POST":
        try:
            done = _carry_out(request, selection)
        except Refusal as refusal:
            error, status = _refusal_text(refusal), refusal.status
    context = {
        "selection": selection,
        "query": selection.query,
        "error": error,
        "done": done,
        "why_not": {verb: bulk.reason_not_to(verb, selection, request.user) for verb in bulk.VERBS},
        "pool_url": _pool_url(request, selection, params),
    }
    return render(request, "jobs/bulk.html", context, status=status)


def _carry_out(request: UserRequest, selection: bulk.NodeSelection) -> bulk.BulkResult:
    count, digest = request.POST.get("count", ""), request.POST.get("digest", "")
    confirmed = {"count": int(count) if count.isascii() and count.isdigit() and len(count) < 10 else -1}
    if request.POST.get("verb") == bulk.PLAN:
        done = bulk.plan_selection(selection, digest=digest, by=request.user, **confirmed)
        if done.queued:
            wake_planning()
        return done
    if request.POST.get("verb") == bulk.REFRESH:
        done = bulk.refresh_selection(selection, digest=digest, by=request.user, **confirmed)
        for cluster in done.clusters:
            tasks.refresh.delay(str(cluster.pk))
        return done
    raise Invalid("There is no such action.", fields={"verb": [f"One of {', '.join(bulk.VERBS)}."]})


def _pool_url(request: UserRequest, selection: bulk.NodeSelection, params: dict[str, str]) -> str:
    """Return the URL where these nodes become a pool; empty unless labels alone choose them, in one cluster."""
    filters = {name for name, value in params.items() if value}
    if filters != {"cluster", "labels"} or not may(request.user, Role.OPERATOR, selection.clusters[0][0].scopes):
        return ""
    given = urlencode({"selector": params["labels"], "count": selection.count})
    return f"{reverse('clusters:pool_new', args=[selection.clusters[0][0].pk])}?{given}"


def _refusal_text(refusal: Refusal) -> str:
    return " ".join([str(refusal), *(text for texts in refusal.fields.values() for text in texts)])
