"""The address that a request comes from."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """Return the client's address. Behind SETPOINT_PROXIES proxies: the entry that the outermost of them wrote."""
    hops = settings.SETPOINT_PROXIES
    forwarded = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()]
    if hops and len(forwarded) >= hops:
        return forwarded[-hops][:64]
    return str(request.META.get("REMOTE_ADDR", ""))[:64]
