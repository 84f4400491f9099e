"""The page of a takeover: what is newer than this database, the request, and the second person's approval.

takeover.html      cluster, newer [TakeoverNode] (read from the cluster; of an open takeover, what was shown), open
                   (Takeover or None), last (the newest that is over, or None), is_unread (why it cannot be read; empty:
                   it was), why_not (to ask; empty: may), why_not_approve, release (typed), message (typed),
                   wrong{field: [text]}
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from accounts.permissions import may
from clusters.models import Cluster
from clusters.reports import selectors
from common.errors import Invalid, Refusal, WrongState
from common.requests import UserRequest
from jobs.models import Takeover
from jobs.rollouts import takeovers


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def takeover(request: UserRequest, cluster_pk: UUID) -> HttpResponse:
    """`verb` is request, approve or withdraw; a refusal shows the page again with what was typed."""
    cluster = get_object_or_404(selectors.clusters_with_counts(request.user), pk=cluster_pk)
    if request.method != "POST":
        return render(request, "jobs/takeover.html", _context(request, cluster))
    try:
        outcome = _act(request, cluster)
    except Refusal as refusal:
        if not refusal.fields:
            messages.error(request, str(refusal))
        typed = {
            "wrong": refusal.fields,
            "message": request.POST.get("message", ""),
            "release": "release_cordons" in request.POST,
        }
        context = _context(request, cluster) | typed
        return render(request, "jobs/takeover.html", context, status=refusal.status)
    messages.success(request, outcome)
    return redirect("jobs:takeover", cluster.pk)


def _act(request: UserRequest, cluster: Cluster) -> str:
    verb = request.POST.get("verb", "")
    if verb == "request":
        release = "release_cordons" in request.POST
        message = request.POST.get("message", "")
        takeovers.request(cluster, by=request.user, message=message, release_cordons=release)
        return "You asked to take these nodes over. A second person must approve."
    if verb not in ("approve", "withdraw"):
        raise Invalid("No action was chosen.", fields={"verb": ["Must be request, approve or withdraw."]})
    if verb == "approve":
        takeovers.approve(takeovers.open_takeover(cluster), by=request.user, digest=request.POST.get("digest", ""))
        return "You approved the takeover. It is carried out now."
    takeovers.withdraw(cluster, by=request.user)
    return "The takeover is withdrawn."


def _context(request: UserRequest, cluster: Cluster) -> dict[str, Any]:
    row = Takeover.objects.filter(cluster=cluster, status__in=Takeover.OPEN).select_related("requested_by").first()
    unread, newer = "", []
    try:
        newer = list(row.nodes.all()) if row else takeovers.find_nodes(cluster)
    except WrongState as error:
        unread = str(error)
    is_admin = may(request.user, "admin", cluster.scopes)
    return {
        "cluster": cluster,
        "open": row,
        "last": Takeover.objects.filter(cluster=cluster).exclude(status__in=Takeover.OPEN).first(),
        "newer": newer,
        "is_unread": unread,
        "why_not": "" if is_admin else f"This needs the role admin for {cluster}.",
        "why_not_approve": takeovers.reason_not_to_approve(row, request.user) if row else "",
    }
