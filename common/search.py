"""A search and its results, which each room finds in its own rows: see `hooks.search`.

Names are found by how they begin, which an index answers at any size; identifiers by their first eight digits or more;
numbers as people write them (P-218, R-131). Rows that the searcher may not see are not found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connection
from django.db.models import Q

LONGEST = 128
"""Of what is searched for, in characters; the longest key of a setting."""
EACH = 8
"""Of each kind that is found."""

_UUID = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")
_NUMBER = re.compile(r"(?:([A-Za-z])-?)?([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Needle:
    """A search, read once for all rooms."""

    text: str
    """One line, without spaces around it; never empty."""

    @classmethod
    def of(cls, text: str) -> Needle | None:
        """None for nothing at all."""
        line = " ".join(text.replace("\x00", " ").split())[:LONGEST].strip()
        return cls(line) if line else None

    @property
    def digits(self) -> str:
        """The hexadecimal digits that an identifier begins with; empty when it is none, or fewer than eight."""
        text = self.text.lower().removeprefix("sha256:")
        hexes = text.replace("-", "")
        return hexes if _UUID.fullmatch(text) and len(hexes) <= 32 else ""

    @property
    def digest(self) -> str:
        """The beginning of a digest, as it is stored; empty when the text is none."""
        text = self.text.lower().removeprefix("sha256:")
        return f"sha256:{text}" if re.fullmatch(r"[0-9a-f]{8,64}", text) else ""

    @property
    def uuids(self) -> tuple[UUID, UUID] | None:
        """The first and the last identifier that begin so: a range, which an index of identifiers answers."""
        if not self.digits:
            return None
        return UUID(self.digits.ljust(32, "0")), UUID(self.digits.ljust(32, "f"))

    def is_of(self, column: str = "pk") -> Q:
        """Rows whose identifier begins so; none when this is no identifier."""
        bounds = self.uuids
        return Q(**{f"{column}__gte": bounds[0], f"{column}__lte": bounds[1]}) if bounds else Q(pk__in=())

    def number(self, letter: str) -> int | None:
        """218 of `218`, `P-218` and `p218`, asked for `P`."""
        match = _NUMBER.fullmatch(self.text)
        return int(match[2]) if match and (match[1] or letter).upper() == letter else None

    def begins(self, column: str, text: str = "") -> Q:
        """Rows whose column begins so, by its index: SQLite's serves no LIKE, PostgreSQL's no range of text."""
        first = text or self.text
        if connection.vendor == "sqlite":
            return Q(**{f"{column}__gte": first, f"{column}__lt": f"{first}\U0010ffff"})
        return Q(**{f"{column}__startswith": first})


@dataclass(frozen=True, slots=True)
class SearchResult:
    id: str
    name: str
    href: str
    note: str = ""
    """What tells it from others of that name: its cluster, its state."""


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """Results of one kind from one room, at most EACH."""

    kind: str
    title: str
    icon: str
    order: int
    """Groups are sorted by it, ascending."""
    found: Sequence[SearchResult] = field(default_factory=tuple)
    more: str = ""
    """Where all of them are listed; empty where there are no more."""
