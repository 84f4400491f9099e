"""The part of SCIM's filters that directories send: `attribute eq "value"`, several joined by `and`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from accounts.scim.refusals import ScimRefused

LONGEST = 2000
MOST_TERMS = 4
_TERM = re.compile(r'\s*([A-Za-z][\w:.\-$]*)\s+([A-Za-z]{2})\s+("(?:[^"\\\x00-\x1f]|\\.)*")\s*', re.ASCII)
_AND = re.compile(r"and(?=\s)", re.IGNORECASE)
_CORE = re.compile(r"urn:ietf:params:scim:schemas:core:2\.0:(user|group):", re.IGNORECASE)


def bare(name: str) -> str:
    """Return an attribute's name in lower case, without the URN of the core schemas."""
    return _CORE.sub("", name, count=1).lower()


def terms(text: str, known: Collection[str]) -> list[tuple[str, str]]:
    """Return (attribute in lower case, value) of each term. Raises ScimRefused."""
    if len(text) > LONGEST:
        raise _refused(f"at most {LONGEST} characters are read")
    matches: list[tuple[str, str]] = []
    at = 0
    while True:
        term = _TERM.match(text, at)
        if term is None:
            raise _refused('write attribute eq "value"')
        matches.append(_checked(term, known))
        at = term.end()
        if at == len(text):
            return matches
        link = _AND.match(text, at)
        if link is None or len(matches) == MOST_TERMS:
            raise _refused(f"at most {MOST_TERMS} terms, joined by and")
        at = link.end()


def _checked(term: re.Match[str], known: Collection[str]) -> tuple[str, str]:
    name = bare(term[1])
    if term[2].lower() != "eq":
        raise _refused(f"the operator {term[2]} is not supported, only eq")
    if name not in {each.lower() for each in known}:
        raise _refused(f"{term[1]} is not supported; there are {', '.join(known)}")
    try:
        value = json.loads(term[3])
        value.encode()
    except (ValueError, UnicodeError):
        raise _refused(f"the value of {term[1]} is no JSON text") from None
    if "\x00" in value:
        raise _refused(f"the value of {term[1]} contains the character NUL")
    return name, value


def _refused(detail: str) -> ScimRefused:
    return ScimRefused(400, f"filter: {detail}.", "invalidFilter")
