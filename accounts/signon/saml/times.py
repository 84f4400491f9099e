"""Times in SAML documents (xs:dateTime)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UTC = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)")


def instant(text: str) -> datetime | None:
    """Return the instant; None for what is none. SAML asks for UTC (Core, section 1.3.3): other zones are refused."""
    match = _UTC.fullmatch(text)
    if match is None or not text.isascii():
        return None
    try:
        at = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    return at.replace(microsecond=int((match[2] or "0")[:6].ljust(6, "0")))
