"""The gate before everything stored: an account without a role reads its own account and nothing else.

Being logged in is enough where a view says so: REST by `needs_role = False`, pages by their addresses, which are listed
here. A role that is limited to a team opens that team's pages, which check it themselves, and nothing behind this gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpRequest
from rest_framework import permissions
from rest_framework.request import Request

from accounts.models import User
from accounts.permissions import has_role, teams_of

if TYPE_CHECKING:  # rest_framework.views reads this module's class while it is being imported itself
    from rest_framework.views import APIView

WITHOUT_A_ROLE = (
    "login/", "logout/", "setup/", "account/", "link/", "oauth/", "scim/", "hooks/", "team/",
    "clusters/setpoint.yaml", "healthz", "readyz", "metrics",
)  # fmt: skip
"""Beginnings of the addresses of pages that open without a role: one's account, and what no log-in is asked for."""


def refusal(user: User) -> str:
    """Return what an account without a role is told."""
    if teams_of(user):
        return "Your role is limited to a team, whose page you may open. An administrator can give you another role."
    return "Your account has no role, so it reads nothing but itself. An administrator can give it one."


def opens(request: HttpRequest, route: str) -> bool:
    """Return whether the page at `route` may be opened as far as having a role goes; its view judges which role.

    The account is not read for pages that need none."""
    if route.startswith(WITHOUT_A_ROLE):
        return True
    return not isinstance(request.user, User) or has_role(request.user)


class HasRole(permissions.BasePermission):
    """An account with some role; a view that shows each account its own alone declares `needs_role = False`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not getattr(view, "needs_role", True) or not isinstance(request.user, User) or has_role(request.user):
            return True
        self.message = refusal(request.user)
        return False
