"""Pages of a cluster's components.

compliance/component.html    component_pages.component_page()
compliance/_component.html   the same context: the live part of it
compliance/_components.html  panel: component_pages.of_cluster()
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from accounts.permissions import restrict
from clusters.models import Cluster
from common.requests import UserRequest
from compliance.reports import component_pages


@require_GET
@login_required
def of_cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    """Return the components part of the cluster's page, which refreshes while the page is open."""
    cluster = get_object_or_404(restrict(Cluster.objects.all(), request.user, prefix=""), pk=pk)
    return render(request, "compliance/_components.html", {"panel": component_pages.of_cluster(request.user, cluster)})


@require_GET
@login_required
def component(request: UserRequest, pk: UUID, name: str) -> HttpResponse:
    return render(request, "compliance/component.html", component_pages.component_page(request.user, pk, name))


@require_GET
@login_required
def component_live(request: UserRequest, pk: UUID, name: str) -> HttpResponse:
    return render(request, "compliance/_component.html", component_pages.component_page(request.user, pk, name))
