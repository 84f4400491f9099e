"""URLs of servers that Setpoint is to ask: one judgment for every room, each with its own sentence."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

LONGEST = 500
"""Characters; most columns that keep one are as long."""


def parted(text: str, *, longest: int = LONGEST) -> SplitResult | None:
    """None where it is too long, not visible ASCII, without a host, or with no possible port."""
    if len(text) > longest or not text.isascii() or not text.isprintable() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.hostname else None


def is_bare(parts: SplitResult) -> bool:
    """Neither query nor fragment: something can be put behind it."""
    return not parts.query and not parts.fragment


def names_a_person(parts: SplitResult) -> bool:
    """Return whether the address itself contains a user name or password, which logs and pages would show."""
    return parts.username is not None or parts.password is not None


def server(text: str) -> tuple[str, str]:
    """(scheme, host and port): where a secret that was given for this URL may go. Empty for what is no URL."""
    parts = parted(text, longest=len(text))
    return (parts.scheme, parts.netloc.lower()) if parts else ("", "")
