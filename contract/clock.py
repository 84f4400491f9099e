"""Times in the API server's clock, the one clock that control plane and agents share."""

from __future__ import annotations

import calendar
import time
from datetime import UTC
from email.utils import parsedate_to_datetime

FORM = "%Y-%m-%dT%H:%M:%SZ"


def stamp(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339, in UTC."""
    return time.strftime(FORM, time.gmtime(seconds))


def parsed(text: str) -> float | None:
    """The other way; None where the text is no such time."""
    try:
        return float(calendar.timegm(time.strptime(text, FORM)))
    except ValueError:
        return None


def of_header(text: str | None) -> float | None:
    """An answer's `Date` in seconds since the epoch; None without one that can be read."""
    try:
        instant = parsedate_to_datetime(text or "")
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
