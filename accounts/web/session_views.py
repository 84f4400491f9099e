"""Ending sessions: one, all one's others, or, as an administrator, all of another person."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from accounts.access import sessions
from accounts.models import User
from common.requests import UserRequest


@require_POST
@login_required
def end(request: UserRequest, pk: int) -> HttpResponse:
    row = sessions.end(pk=pk, by=request.user)
    if row.key == sessions.key_of(request):
        return redirect(settings.LOGIN_URL)
    messages.success(request, f"{row} is logged out.")
    return redirect("accounts:account")


@require_POST
@login_required
def end_others(request: UserRequest) -> HttpResponse:
    ended = sessions.end_others(user=request.user, keep=sessions.key_of(request), by=request.user)
    sentence = (
        f"{ended} other {'session' if ended == 1 else 'sessions'} ended." if ended else "There was no other session."
    )
    messages.success(request, sentence)
    return redirect("accounts:account")


@require_POST
@login_required
def end_of_person(request: UserRequest, pk: int) -> HttpResponse:
    """End all sessions of an account, except the one in use. For administrators of everything."""
    user = get_object_or_404(User, pk=pk)
    keep = sessions.key_of(request) if user.pk == request.user.pk else None
    ended = sessions.end_others(user=user, keep=keep, by=request.user)
    messages.success(request, f"{user.email}: {ended} {'session' if ended == 1 else 'sessions'} ended.")
    return redirect("accounts:people")
