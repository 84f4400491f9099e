"""Token scopes: what a view declares, and the permission class that holds it to that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rest_framework import permissions
from rest_framework.exceptions import MethodNotAllowed, PermissionDenied
from rest_framework.request import Request

if TYPE_CHECKING:  # rest_framework.views reads this module's class while it is being imported itself
    from rest_framework.views import APIView


class HasScope(permissions.BasePermission):
    """Logged in, and the token, where there is one, carries the scope the view declares for this method or action."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.user is None or not request.user.is_authenticated:
            return False
        method = str(request.method)
        if not hasattr(view, method.lower()):
            raise MethodNotAllowed(method)
        needed = needed_scope(view, method)
        if request.auth is None or needed in request.auth.scopes:
            return True
        if needed == "read" and request.auth.scopes:
            return True  # whoever may change things may look
        raise PermissionDenied(f"This token has no scope {needed}; it has {', '.join(request.auth.scopes) or 'none'}.")


def needed_scope(view: Any, method: str) -> str:
    """Raises LookupError for a view that does not declare its scope: a programming error, found by a test."""
    declared: Mapping[str, str] = getattr(view, "scope_for", {})
    if method in ("HEAD", "OPTIONS"):
        method = "GET" if "GET" in declared else next(iter(declared), method)
    action = getattr(view, "action", None)
    return declared[action] if action in declared else declared[method]
