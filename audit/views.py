from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from audit.selectors import RecordFilter, visible_to
from common.requests import UserRequest

ROWS = 50


@require_GET
@login_required
def records(request: UserRequest) -> HttpResponse:
    """The record, newest first. Filters live in the URL; a wrong one is shown beside its field and narrows nothing."""
    filters = RecordFilter(request.GET, queryset=visible_to(request.user))
    page = Paginator(filters.qs, ROWS).get_page(request.GET.get("page"))
    return render(request, "audit/records.html", {"page_obj": page, "filters": filters})
