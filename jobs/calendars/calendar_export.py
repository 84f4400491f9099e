"""Calendar rules as an iCalendar file, with the time zones that they name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from icalendar import Calendar, Event, vDuration, vRecur

from common.clock import now
from jobs.calendars import targets
from jobs.calendars.calendar_file import KIND
from jobs.calendars.recurrence import Recurrence
from jobs.models import CalendarRule


class _Elapsed(vDuration):
    """A length in minutes: `P1D` would be a day of the zone, of 23 to 25 hours."""

    def to_ical(self) -> bytes:
        return f"PT{self.td // timedelta(minutes=1)}M".encode()


def export(rows: Iterable[CalendarRule]) -> bytes:
    """Return the file. A rule that cannot be read any more is left out: no event says when it applies."""
    out = Calendar()
    out.add("PRODID", "-//Setpoint//Calendar rules//EN")
    out.add("VERSION", "2.0")
    for row in rows:
        if rule := targets.recurrence_of(row):
            out.add_component(_event(row, rule))
    if out.events:
        years = [rule.start.year for row in rows if (rule := targets.recurrence_of(row))]
        out.add_missing_timezones(date(min(years), 1, 1), date(max(*years, now().year) + 5, 1, 1))
    content: bytes = out.to_ical()
    return content


def _event(row: CalendarRule, rule: Recurrence) -> Event:
    event, zone = Event(), ZoneInfo(rule.zone)
    event.add("UID", f"calendar-rule-{row.pk}@setpoint")
    event.add("DTSTAMP", row.changed_at)
    event.add("SUMMARY", row.name)
    event.add(KIND, row.kind)

    def value(local: datetime) -> date:
        return local.date() if rule.is_whole_days else local.replace(tzinfo=zone)

    event.add("DTSTART", value(rule.start))
    if rule.is_whole_days:
        event.add("DTEND", value(rule.start + rule.length))
    else:
        event["DURATION"] = _Elapsed(rule.length)
    if row.rule:
        event["RRULE"] = vRecur.from_ical(_rule_text(row, rule))
    if rule.excluded:
        event.add("EXDATE", [value(local) for local in sorted(rule.excluded)])
    if rule.added:
        event.add("RDATE", [value(local) for local in rule.added])
    return event


def _rule_text(row: CalendarRule, rule: Recurrence) -> str:
    """Return the RRULE with UNTIL as RFC 5545 wants it: in UTC, or a date where the event is of days."""
    if rule.until is None:
        return row.rule
    if rule.is_whole_days:
        until = f"{rule.until.astimezone(ZoneInfo(rule.zone)):%Y%m%d}"
    else:
        until = f"{rule.until:%Y%m%dT%H%M%SZ}"
    parts = [part for part in row.rule.split(";") if not part.startswith("UNTIL=")]
    return ";".join([*parts, f"UNTIL={until}"])
