"""Pages that make a profile's draft from what a cluster runs. What each template gets:

components/installed_choose.html
    clusters        those that this person may read, and why_not, where there are none

components/installed.html       posts to its own address: the cluster is asked then, not before
    cluster
    draft           importing.ProfileDraft, once it was asked; `error`: why it could not be
    may_read, why_not
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.permissions import ANYWHERE, Role, may, require, restrict
from clusters.models import Cluster
from clusters.reports import selectors
from common.errors import WrongState
from common.requests import UserRequest
from components.importer import importing

LIMIT = 500


@require_GET
@login_required
def choose(request: UserRequest) -> HttpResponse:
    require(request.user, Role.OPERATOR, ANYWHERE, "make a profile from what a cluster runs")
    clusters = restrict(Cluster.objects.order_by("name"), request.user, "", Role.OPERATOR)[:LIMIT]
    return render(request, "components/installed_choose.html", {"clusters": clusters})


@require_http_methods(["GET", "POST"])
@login_required
def installed(request: UserRequest, pk: UUID) -> HttpResponse:
    cluster = get_object_or_404(selectors.clusters_visible_to(request.user), pk=pk)
    draft, error = None, ""
    if request.method == "POST":
        try:
            draft = importing.draft_profile(cluster, by=request.user)
        except WrongState as refusal:
            error = str(refusal)
    may_read = may(request.user, Role.OPERATOR, cluster.scopes)
    context = {
        "cluster": cluster,
        "draft": draft,
        "error": error,
        "may_read": may_read,
        "why_not": "" if may_read else "You need the role operator here.",
    }
    return render(request, "components/installed.html", context, status=WrongState.status if error else 200)
