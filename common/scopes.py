"""Token scopes: what a view declares, and the permission class that holds it to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        if request.auth is None:
            return True
        scopes: Sequence[str] = getattr(request.auth, "scopes", ())
        if needed in scopes or (needed == "read" and scopes):  # a scope to change things includes reading
            return True
        raise PermissionDenied(f"This token has no scope {needed}; it has {', '.join(scopes) or 'none'}.")


def needed_scope(view: Any, method: str) -> str:
    """Raises LookupError for a view that does not declare its scope: a programming error, found by a test."""
    declared: Mapping[str, str] = getattr(view, "scope_for", {})
    if method in ("HEAD", "OPTIONS"):
        method = "GET" if "GET" in declared else next(iter(declared), method)
    action: str = getattr(view, "action", None) or ""
    return declared[action] if action in declared else declared[method]
