"""Timeline of one object, from the entries of every room, in one order and paged by key.

Entries are ordered by (at, source, key), newest first. A room is asked with the cursor of the page before and gives at
most `limit` entries after it; `page` merges the rooms' answers. No room counts, so any depth costs the same.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from common.errors import Invalid

M = TypeVar("M", bound=Model)
_KEY = re.compile(r"[0-9]{20}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A whole number as `place` writes it, or a UUID."""
EDITS, VERDICTS, ROLLOUTS, DRIFT = "edits", "verdicts", "rollouts", "drift"
WHAT = (EDITS, VERDICTS, ROLLOUTS, DRIFT)
"""The kinds of entry, by which a timeline can be narrowed."""


@dataclass(frozen=True, slots=True, order=True)
class EntryPosition:
    """Position of an entry in the order of all rooms' entries."""

    at: datetime
    source: str
    """The room's word for where it comes from, such as `audit`."""
    key: str
    """Of the row within its source; whole numbers are written with leading zeros, so that text sorts as they do."""


@dataclass(frozen=True, slots=True)
class Entry:
    place: EntryPosition
    what: str
    """One of WHAT."""
    text: str
    """One sentence without its time: what happened."""
    icon: str
    tone: str = ""
    """The color class of common.look: ok, warn, bad, run, or empty."""
    by: str = ""
    url: str = ""
    detail: str = ""
    on: str = ""
    """The one node, or on a node the one setting, that it is about."""
    alike: str = ""
    """The sentence for several, `{}` their number: neighbors on a page that are alike are shown as one."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Request for a timeline: the object, its reader, the start. Visible to everyone that may see the object."""

    kind: str
    """cluster, node, pool, profile, plan or rollout."""
    row: Any
    user: Any
    limit: int
    """How many entries each source has to give, where it has so many."""
    before: EntryPosition | None = None
    only: str = ""
    """One of WHAT; empty: all of them."""
    targets: Sequence[str] = ()
    """What audit records call the object, and what belongs to it: `plan:<uuid>`."""
    told: Sequence[str] = ()
    """Actions of audit records that another source tells better."""

    def wants(self, *what: str) -> bool:
        return not self.only or self.only in what

    def rows(self, queryset: QuerySet[M], source: str, *, at: str = "at") -> list[M]:
        """The next rows of one source, newest first. `at` names its column of time."""
        before = self.before
        if before is not None:
            earlier = Q(**{f"{at}__lt": before.at})
            if source < before.source:
                earlier |= Q(**{at: before.at})
            elif source == before.source:
                earlier |= Q(**{at: before.at, "pk__lt": int(before.key) if before.key.isdigit() else before.key})
            queryset = queryset.filter(earlier)
        return list(queryset.order_by(f"-{at}", "-pk")[: self.limit])


def place(at: datetime, source: str, key: Any) -> EntryPosition:
    return EntryPosition(at, source, f"{key:020d}" if isinstance(key, int) else str(key))


@dataclass(slots=True)
class TimelineLine:
    """Line of a page: one entry, or several that are alike."""

    entry: Entry
    others: list[Entry] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.entry.alike.format(1 + len(self.others)) if self.others else self.entry.text

    @property
    def word(self) -> str:
        return {EDITS: "edit", VERDICTS: "verdict", ROLLOUTS: "rollout", DRIFT: "settings"}[self.entry.what]

    @property
    def names(self) -> list[str]:
        return sorted({entry.on for entry in (self.entry, *self.others)}) if self.others else []


def lines(entries: Iterable[Entry]) -> list[TimelineLine]:
    """Neighbors of one day that say the same of different nodes, or settings, become one line."""
    out: list[TimelineLine] = []
    for entry in entries:
        last = out[-1] if out else None
        if last and entry.alike and _is_alike(last, entry):
            last.others.append(entry)
        else:
            out.append(TimelineLine(entry))
    return out


def _is_alike(line: TimelineLine, entry: Entry) -> bool:
    first = line.entry
    same = (first.alike, first.by, first.detail) == (entry.alike, entry.by, entry.detail)
    is_new = entry.on not in {first.on, *(other.on for other in line.others)}
    return same and is_new and first.place.at.date() == entry.place.at.date()


def page(entries: Iterable[Entry], limit: int) -> tuple[list[Entry], str]:
    """The newest `limit` of what the rooms gave, and the cursor of the next page; empty when there is none.

    The rooms are asked for one more than `limit`: a source that gave no more than that may hold more.
    """
    ordered = sorted(entries, key=lambda entry: entry.place, reverse=True)
    shown = ordered[:limit]
    return shown, cursor(shown[-1].place) if len(ordered) > limit else ""


def cursor(at: EntryPosition) -> str:
    text = json.dumps([at.at.isoformat(), at.source, at.key])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str) -> EntryPosition | None:
    """Raises Invalid for what no page gave out."""
    if not text:
        return None
    try:
        at, source, key = json.loads(base64.urlsafe_b64decode(text[:400] + "=" * (-len(text[:400]) % 4)))
        when = datetime.fromisoformat(at)
        if when.tzinfo is None or not isinstance(source, str) or not isinstance(key, str):
            raise ValueError(text)
        if not _KEY.fullmatch(key):
            raise ValueError(text)
    except (ValueError, TypeError) as error:
        message = "This is not a place in a timeline."
        raise Invalid(message, fields={"before": [message]}) from error
    return EntryPosition(when, source, key)
