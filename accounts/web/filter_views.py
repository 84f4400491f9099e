"""Keeping a list's filter under a name, and dropping it; both lead back to the list."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from accounts import filters
from common.errors import Invalid
from common.requests import UserRequest


@require_POST
@login_required
def keep(request: UserRequest) -> HttpResponse:
    given = {name: request.POST.get(name, "") for name in ("page", "name", "query")}
    try:
        row = filters.keep(**given, is_shared=request.POST.get("is_shared") == "1", by=request.user)
    except Invalid as refusal:
        if given["page"] not in filters.PAGES:
            raise
        reasons = " ".join(text for texts in refusal.fields.values() for text in texts)
        messages.error(request, f"{refusal} {reasons}".strip())
        return redirect(_list(given["page"], given["query"]))
    messages.success(request, f"“{row.name}” is saved{' for everyone' if row.is_shared else ''}.")
    return redirect(filters.url_of(row))


@require_POST
@login_required
def drop(request: UserRequest, pk: int) -> HttpResponse:
    row = filters.drop(pk=pk, by=request.user)
    messages.success(request, f"“{row.name}” is deleted.")
    return redirect(_list(row.page, row.query))


def _list(page: str, query: str) -> str:
    """Return the address of one of our own lists, without a query that is not valid."""
    try:
        return f"{reverse(filters.PAGES[page])}?{filters.canonical(query)}"
    except Invalid:
        return reverse(filters.PAGES[page])
