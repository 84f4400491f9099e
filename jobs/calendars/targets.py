"""The calendar of a target: the rules that apply to a pool of a cluster, read from their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import Q

from clusters.models import Cluster
from common.clock import now
from jobs.calendars import rule_text
from jobs.calendars.open_times import CalendarEntry, Opening, Span, opening_at
from jobs.calendars.recurrence import Recurrence
from jobs.models import CalendarRule, Freeze

FREEZE_IS_ACTIVE = "A freeze is active:"


def recurrence_of(row: CalendarRule) -> Recurrence | None:
    """None: the row cannot be read any more."""
    try:
        return rule_text.read(
            row.starts,
            row.zone,
            row.minutes,
            row.rule,
            tuple(row.excluded),
            added=tuple(row.added),
            is_whole_days=row.whole_days,
        )
    except rule_text.Unreadable:
        return None


def entries(rows: Iterable[CalendarRule]) -> list[CalendarEntry]:
    return [CalendarEntry(row.name, row.kind, recurrence_of(row)) for row in rows]


def entries_of(cluster: Cluster, pool_id: int | None) -> list[CalendarEntry]:
    """Read the rules of one target. One query."""
    return entries(CalendarRule.objects.of_target(cluster, pool_id))


def opening_of(cluster: Cluster, pool_id: int | None) -> Opening:
    """Evaluate a target's calendar as of now. One query."""
    return opening_at(entries_of(cluster, pool_id), now())


@dataclass(frozen=True, slots=True)
class ActiveFreeze:
    """A freeze that is in effect, whether it was set by hand or is one of the calendar."""

    reason: str
    until: datetime | None
    """None: until it is lifted."""


def active_freeze(
    cluster: Cluster, pool_id: int | None, calendar: Sequence[CalendarEntry] | None = None
) -> ActiveFreeze | None:
    """Return a freeze that is in effect for a target: of those set by hand the one that ends last, else one of the
    calendar. Two queries at most; `calendar`: of the target, where it is read already.
    """
    if row := Freeze.standing(cluster.pk).first():
        return ActiveFreeze(row.reason, row.until)
    return _of_calendar(opening_of(cluster, pool_id) if calendar is None else opening_at(calendar, now()))


def active_freezes(clusters: Sequence[Cluster]) -> dict[UUID, ActiveFreeze]:
    """Return the freezes that are in effect for whole clusters, as `active_freeze` does of one. Two queries."""
    by_hand = list(Freeze.in_effect().filter(Q(cluster=None) | Q(cluster__in=clusters)))
    rules = list(CalendarRule.objects.in_effect().filter(Q(cluster=None) | Q(cluster__in=clusters), pool=None))
    out: dict[UUID, ActiveFreeze] = {}
    for cluster in clusters:
        if row := next((row for row in by_hand if row.cluster_id in (None, cluster.pk)), None):
            out[cluster.pk] = ActiveFreeze(row.reason, row.until)
            continue
        of_cluster = [
            rule
            for rule in rules
            if rule.environment in ("", cluster.environment) and rule.cluster_id in (None, cluster.pk)
        ]
        if freeze := _of_calendar(opening_at(entries(of_cluster), now())):
            out[cluster.pk] = freeze
    return out


def _of_calendar(opening: Opening) -> ActiveFreeze | None:
    return ActiveFreeze(f"{opening.freeze.name}, of the calendar.", opening.freeze.end) if opening.freeze else None


def local_time(span: Span) -> str:
    """Format the start of a span in the zone of its rule: `Fri 27 Nov 22:00 Europe/Berlin`."""
    return local_moment(span.start, span.zone)


def local_moment(at: datetime, zone: str) -> str:
    """Format an instant in a zone: `Fri 27 Nov 22:00 Europe/Berlin`."""
    return f"{at.astimezone(ZoneInfo(zone)):%a %d %b %H:%M} {zone}"


def freeze_sentence(opening: Opening) -> str:
    """Name the freeze of the calendar that is in effect; empty: none is."""
    if not opening.freeze:
        return ""
    until = f", until {local_moment(opening.freeze.end, opening.freeze.zone)}" if opening.freeze.name else ""
    return f"{FREEZE_IS_ACTIVE} {opening.freeze.name}{until}."


def closed_sentence(opening: Opening) -> str:
    """Say what a closed target waits for; empty when it is open."""
    if opening.is_open:
        return ""
    if span := opening.upcoming:
        return (
            f"Waits for window “{span.name}”, opens {local_time(span)}."
            if span.name
            else (f"Waits for the end of a freeze, {local_time(span)}.")
        )
    return "Waits for a window: none opens within 400 days. Change the windows of this target."
