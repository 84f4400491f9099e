from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from audit.selectors import ORDERS, RecordFilter, clusters_named, panels_for, visible_to
from common import hooks, listing
from common.requests import UserRequest


@require_GET
@login_required
def records(request: UserRequest) -> HttpResponse:
    """Audit trail, newest first. Filters live in the URL; an invalid one is reported and not applied."""
    record_list = listing.read(request, visible_to(request.user), RecordFilter, ORDERS)
    saved = next(iter(hooks.kept_filters("audit", request.user)), None)
    context = {
        "listing": record_list,
        "clusters": clusters_named(request.user),
        "query": record_list.query,
        "saved": saved,
        "panels": panels_for(request.user),
    }
    return render(request, "audit/records.html", context)
