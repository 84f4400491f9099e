"""Roles for which SETPOINT_SECOND_FACTOR asks for a second factor: until it is set up, a browser's session does
nothing else.

A session remembers that its log-in had one, so a request costs no query for it. Tokens are not affected.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest

from accounts.models import Identity, RoleBinding, User

_COMPLETE = "accounts.second_factor"
"""Key in the session: its log-in had a code, or was at a provider, whose matter the second factor is."""


def note_complete(request: HttpRequest) -> None:
    request.session[_COMPLETE] = True


def note_incomplete(request: HttpRequest) -> None:
    request.session.pop(_COMPLETE, None)


def is_complete(request: HttpRequest) -> bool:
    return bool(request.session.get(_COMPLETE))


def is_missing(request: HttpRequest) -> bool:
    """Return whether this browser must set up a second factor, or log in with it, before anything else."""
    roles = settings.SETPOINT_SECOND_FACTOR
    if not roles or not isinstance(request.user, User) or is_complete(request):
        return False
    if not is_required_of(request.user):
        return False
    if Identity.objects.filter(user=request.user).exists():  # a session from before the setting
        note_complete(request)
        return False
    return True


def is_required_of(user: User) -> bool:
    """Return whether this person holds a role of the setting: a superuser holds all, and each role includes viewer."""
    roles = settings.SETPOINT_SECOND_FACTOR
    if not roles or user.is_superuser:
        return bool(roles)
    return any(role in roles or RoleBinding.Role.VIEWER in roles for role, _ in user.grants)
