"""Quotation of a source's own words: what it answers is shown on pages and sent to people, who must not be misled.

An answer can echo the request's headers, and a page of errors has HTML; mail and chat make links of either.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator

from clusters.connection import encryption
from gpus.models import TelemetrySource

_TAG = re.compile(r"<[^<>]*>?|>")
_LINK = re.compile(r"\]\s*\(")
_LEAST = 4
"""Characters of a secret that is looked for: a shorter one is in too many words."""
CONCEALED = "•••"


def secrets(source: TelemetrySource) -> tuple[str, ...]:
    """Return each text by which an answer could give the source's secret away, the longest first."""
    try:
        secret = source.open_secret()
    except (encryption.CannotOpen, encryption.KeyUnusable):
        return ()  # it was not sent either
    return tuple(sorted(set(_forms(source.username, secret)), key=len, reverse=True))


def _forms(username: str, secret: str) -> Iterator[str]:
    lines = (
        secret.split("\n") if "\n" in secret else [secret, base64.b64encode(f"{username}:{secret}".encode()).decode()]
    )
    return (line.strip() for line in lines if len(line.strip()) >= _LEAST)


def quoted(text: str, concealed: Iterable[str]) -> str:
    """Return a text that may hold an answer's words, without secrets, tags and links behind other words."""
    for secret in concealed:
        text = text.replace(secret, CONCEALED)
    return " ".join(_LINK.sub("] (", _TAG.sub(" ", text)).split())
