"""The time at which this browser's person last proved who they are, for what takes a recent proof (SETPOINT_STEP_UP).

A session lives for days; the person before the browser may be another one by then. The time is kept in the session. A
log-in at a provider counts from when the provider says that the person proved themselves, not from when it sent them
back: it may have remembered them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from common.clock import now

_PROVED = "accounts.proved_at"
"""Key in the session; seconds since the epoch."""
_WAY = "accounts.proved_by"
CLOCKS_APART = timedelta(minutes=1)
"""Of several servers. A proof from further ahead is of a clock that was wrong, and would stay recent for too long."""


def note(request: HttpRequest, at: datetime | None, way: str) -> None:
    """Keep the time and the way; None: it is not known, which is as long ago as can be."""
    request.session[_WAY] = way
    if at is None:
        request.session.pop(_PROVED, None)
    else:
        request.session[_PROVED] = min(at, now()).timestamp()


def proved_at(request: Any) -> datetime | None:
    """Return the time of the proof, of a page's or an API's request; None where it is unknown, and of a token."""
    if getattr(request, "auth", None) is not None:
        return None
    seconds = request.session.get(_PROVED)
    return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, float) else None


def proved_by(request: HttpRequest) -> str:
    """Return how the person last proved themselves in this browser, as the audit record has it; empty: not known."""
    return str(request.session.get(_WAY, ""))


def is_stale(proved_at: datetime | None) -> bool:
    """Return whether that is no recent proof: too long ago, in the future, or unknown."""
    if proved_at is None:
        return True
    age = now() - proved_at
    return age > timedelta(minutes=settings.SETPOINT_STEP_UP_MINUTES) or age < -CLOCKS_APART


def at_provider(claims: Mapping[str, Any]) -> datetime | None:
    """Return when the person proved themselves there (OpenID Connect's `auth_time`); None where it is not told."""
    seconds = claims.get("auth_time")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
