"""URLs of servers that Setpoint is told to ask: one judgement for every room, each with its own sentence."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

LONGEST = 500
"""Characters; the columns that keep one are as long."""


def parted(text: str) -> SplitResult | None:
    """None where it is too long, not visible ASCII, without a host, or with a query, a fragment or no possible port."""
    if len(text) > LONGEST or not text.isascii() or not text.isprintable() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return None if not parts.hostname or parts.query or parts.fragment else parts


def names_a_person(parts: SplitResult) -> bool:
    """User name or password stand in the address itself, where logs and pages would show them."""
    return parts.username is not None or parts.password is not None


def server(text: str) -> tuple[str, str]:
    """(scheme, host and port): where a secret that was given for this URL may go. Empty for what is no URL."""
    parts = parted(text)
    return (parts.scheme, parts.netloc.lower()) if parts else ("", "")
