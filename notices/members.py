"""Members of an alert that is one for several: stored with it, bounded, and for a day after they left it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from common.alerting import AlertMember

MOST = 500
"""Members that one alert keeps; its figures count them all."""
SHOWN = 100
"""On its page and over REST."""
TOLD = 20
"""In one notice."""
KEPT = timedelta(days=1)
"""After a member left: so long a digest may still count it."""
Stored = dict[str, Any]
"""`name`, `since` and `left_at` (ISO, null while it is one) and `figures`."""


def merged(stored: Sequence[Stored], members: Sequence[AlertMember], at: datetime) -> list[Stored]:
    """Return the members of now in their order, and after them those that left, the last to leave first."""
    begun = {entry["name"]: entry["since"] for entry in stored if entry["left_at"] is None}
    present = [_entry(member, begun, at) for member in members[:MOST]]
    here = {(entry["name"], entry["since"]) for entry in present}
    left = [entry | {"left_at": entry["left_at"] or at.isoformat()} for entry in stored]
    kept = [
        entry
        for entry in left
        if (entry["name"], entry["since"]) not in here and at - datetime.fromisoformat(entry["left_at"]) < KEPT
    ]
    kept.sort(key=lambda entry: (entry["left_at"], entry["name"]), reverse=True)
    return present + kept[:MOST]


def _entry(member: AlertMember, begun: dict[str, str], at: datetime) -> Stored:
    since = member.since.isoformat() if member.since else begun.get(member.name, at.isoformat())
    return {"name": member.name, "since": since, "left_at": None, "figures": dict(member.figures)}


def present(stored: Sequence[Stored]) -> list[Stored]:
    return [entry for entry in stored if entry["left_at"] is None]


def shown(stored: Sequence[Stored]) -> Iterator[dict[str, Any]]:
    """Yield the first of the present members with their times as instants, for pages and REST."""
    for entry in present(stored)[:SHOWN]:
        yield entry | {"since": datetime.fromisoformat(entry["since"])}
