"""Events of an iCalendar file as calendar rules. Pure: what a rule is for comes from the person who imports.

`icalendar` reads the properties; the recurrence is read by `rule_text`, as that of a form. What cannot be
kept exactly is refused with its reason: a window that opens at other times than its owner's calendar has is worse
than none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from icalendar import Event

from jobs.calendars import rule_text
from jobs.calendars.calendar_lines import Block, cut
from jobs.calendars.calendar_zones import FileZones, UnknownZone
from jobs.calendars.rule_text import LOCAL_TIME, MINUTES_OF_A_DAY

KIND = "X-SETPOINT-KIND"
ParsedEvent = Any
"""An `icalendar.Event`, whose properties are of two dozen types."""
READ = ("DTSTART", "DTEND", "DURATION", "RRULE", "EXDATE", "RDATE", "RECURRENCE-ID")
ONCE = ("DTSTART", "DTEND", "DURATION", "RRULE", "RECURRENCE-ID")


class Unusable(Exception):
    """Reason for which an event makes no rule."""


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    line: int
    uid: str
    reason: str

    def __str__(self) -> str:
        return f"Line {self.line}, UID {self.uid[:80] or 'missing'}: {self.reason}"


@dataclass(slots=True)
class ImportedEvent:
    """An event, as fields of a rule."""

    line: int
    uid: str
    fields: dict[str, Any]


@dataclass(slots=True)
class FileEvents:
    events: list[ImportedEvent] = field(default_factory=list)
    refused: list[RefusedEvent] = field(default_factory=list)


def read_events(content: bytes, zone: str) -> FileEvents:
    """Read a file. `zone`: of dates and times without one; empty: the file's own. Raises Invalid."""
    lines = cut(content)
    fallback = zone or (lines.zone if lines.zone in rule_text.zones() else "")
    reader = _FileReader(FileZones(lines.zones), fallback)
    groups: dict[str, list[tuple[Block, ParsedEvent]]] = defaultdict(list)
    out = FileEvents()
    for number, block in enumerate(lines.events):
        try:
            event = _parsed(block)
            groups[str(event.get("UID", "")) or f"#{number}"].append((block, event))
        except Unusable as error:
            out.refused.append(RefusedEvent(block.line, _uid_of(block), str(error)))
    broken = {refused.uid for refused in out.refused if refused.uid}
    for uid, group in groups.items():
        block, event = next((pair for pair in group if "RECURRENCE-ID" not in pair[1]), group[0])
        try:
            if uid in broken:
                raise Unusable("another event of this UID cannot be read.")
            out.events.append(ImportedEvent(block.line, uid.lstrip("#"), reader.fields(event, group)))
        except (Unusable, UnknownZone) as error:
            out.refused.append(RefusedEvent(block.line, "" if uid.startswith("#") else uid, str(error)))
    _name_apart(out.events)
    out.events.sort(key=lambda e: e.line)
    out.refused.sort(key=lambda e: e.line)
    return out


def _uid_of(block: Block) -> str:
    return next((line[4:].strip() for line in block.lines if line[:4].upper() == "UID:"), "")


def _parsed(block: Block) -> ParsedEvent:
    try:
        event = Event.from_ical(block.text)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Unusable(f"it cannot be read: {str(error)[:120]}") from error
    if not isinstance(event, Event):
        raise Unusable("it is not an event.")
    for name, message in event.errors:
        if name in READ:
            raise Unusable(f"{name} cannot be read: {str(message)[:120]}")
    for name in ONCE:
        if isinstance(event.get(name), list):
            raise Unusable(f"{name} is given more than once.")
    return event


def _name_apart(events: Iterable[ImportedEvent]) -> None:
    """Number events of the same name: a rule's name is unique."""
    counts: Counter[str] = Counter()
    for event in events:
        name = event.fields["name"]
        counts[name] += 1
        if counts[name] > 1:
            event.fields["name"] = f"{name[:72]} ({counts[name]})"


@dataclass(frozen=True, slots=True)
class _Timed:
    """Start and length of an event."""

    start: datetime
    """Local."""
    zone: str
    minutes: int
    is_whole_days: bool

    def local(self, value: date | datetime) -> datetime:
        """Return a date or time of EXDATE or RDATE as a local start."""
        if not isinstance(value, datetime):
            return datetime.combine(value, self.start.time())
        if value.tzinfo is None:
            return value
        return value.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None)


class _FileReader:
    def __init__(self, zones: FileZones, fallback: str) -> None:
        self._zones, self._fallback = zones, fallback

    def fields(self, event: ParsedEvent, group: list[tuple[Block, ParsedEvent]]) -> dict[str, Any]:
        """Return the fields of a rule that an event makes, with the changed occurrences of its UID. Raises Unusable."""
        if str(event.get("STATUS", "")).upper() == "CANCELLED":
            raise Unusable("it is cancelled.")
        if "RECURRENCE-ID" in event:
            raise Unusable("it changes an occurrence of an event that the file does not have.")
        timed = self._timed(event)
        rule = event["RRULE"].to_ical().decode() if "RRULE" in event else ""
        excluded, added = self._dates(event, "EXDATE", timed), self._dates(event, "RDATE", timed)
        for _, other in group:
            if other is event:
                continue
            excluded.add(self._replaced(other, timed))
            if str(other.get("STATUS", "")).upper() != "CANCELLED":
                added.add(self._moved(other, timed))
        excluded -= added
        name = " ".join(str(event.get("SUMMARY", "")).split()) or str(event.get("UID", ""))
        out = {
            "name": name[:80].strip() or "Unnamed event", "starts": f"{timed.start:{LOCAL_TIME}}", "zone": timed.zone,
            "minutes": timed.minutes, "rule": rule, "excluded": [f"{at:{LOCAL_TIME}}" for at in sorted(excluded)],
            "added": [f"{at:{LOCAL_TIME}}" for at in sorted(added)], "whole_days": timed.is_whole_days,
        }  # fmt: skip
        if (kind := str(event.get(KIND, ""))) in ("window", "freeze"):
            out["kind"] = kind
        self._check(out)
        return out

    def _check(self, fields: dict[str, Any]) -> None:
        try:
            rule_text.read(
                fields["starts"], fields["zone"], fields["minutes"], fields["rule"], tuple(fields["excluded"]),
                added=tuple(fields["added"]), is_whole_days=fields["whole_days"],
            )  # fmt: skip
        except rule_text.Unreadable as error:
            raise Unusable(str(error)) from error

    def _timed(self, event: ParsedEvent) -> _Timed:
        if "DTSTART" not in event:
            raise Unusable("it has no DTSTART.")
        begin = event["DTSTART"].dt
        if not isinstance(begin, datetime):
            return self._whole_days(event, begin)
        local, zone = self._local(event, "DTSTART")
        if local.second or local.microsecond:
            raise Unusable("it must start at a whole minute.")
        length = self._length(event, local, zone)
        minutes, rest = divmod(length.total_seconds(), 60)
        if rest:
            raise Unusable("its length must be whole minutes.")
        is_whole = str(event.get("X-MICROSOFT-CDO-ALLDAYEVENT", "")).upper() == "TRUE" and local.time() == time()
        if is_whole:
            minutes = round(minutes / MINUTES_OF_A_DAY) * MINUTES_OF_A_DAY
        return _Timed(local, zone, int(minutes), is_whole)

    def _whole_days(self, event: ParsedEvent, begin: date) -> _Timed:
        if not self._fallback:
            raise Unusable("it lasts all day, and neither you nor the file names a time zone: choose one.")
        days = timedelta(days=1)
        if "DTEND" in event:
            end = event["DTEND"].dt
            if isinstance(end, datetime):
                raise Unusable("DTSTART is a date, and DTEND is a time.")
            days = end - begin
        elif "DURATION" in event:
            days = event["DURATION"].dt
        if days % timedelta(days=1) or days <= timedelta(0):
            raise Unusable("an event of days must end on a later day.")
        start = datetime.combine(begin, time())
        return _Timed(start, self._fallback, days // timedelta(minutes=1), is_whole_days=True)

    def _local(self, event: ParsedEvent, name: str) -> tuple[datetime, str]:
        """Return local time and IANA zone of a property."""
        value: datetime = event[name].dt
        tzid = str(event[name].params.get("TZID", ""))
        local = value.replace(tzinfo=None)
        if tzid:
            return local, self._zones.iana(tzid, local)
        if value.tzinfo is not None:
            return local, "UTC"
        if not self._fallback:
            raise Unusable(f"{name} has no time zone, and neither you nor the file names one: choose one.")
        return local, self._fallback

    def _length(self, event: ParsedEvent, local: datetime, zone: str) -> timedelta:
        if "DTEND" in event:
            if not isinstance(event["DTEND"].dt, datetime):
                raise Unusable("DTSTART is a time, and DTEND is a date.")
            end, end_zone = self._local(event, "DTEND")
            return end.replace(tzinfo=ZoneInfo(end_zone)).astimezone(UTC) - _instant(local, zone)
        if "DURATION" in event:
            length: timedelta = event["DURATION"].dt
            return length
        raise Unusable("it has no length: neither DTEND nor DURATION.")

    def _dates(self, event: ParsedEvent, name: str, timed: _Timed) -> set[datetime]:
        given = event.get(name, [])
        out = set()
        for dates in given if isinstance(given, list) else [given]:
            for value in dates.dts:
                if isinstance(value.dt, tuple):
                    raise Unusable(f"{name} with periods is not supported: give starts.")
                local = timed.local(value.dt)
                if local.second:
                    raise Unusable(f"{name} must be whole minutes.")
                out.add(local)
        return out

    def _replaced(self, other: ParsedEvent, timed: _Timed) -> datetime:
        """Return the local start of the occurrence that another event changes."""
        if other.get("RECURRENCE-ID") is None:
            raise Unusable("its UID is given twice.")
        if "RANGE" in other["RECURRENCE-ID"].params:
            raise Unusable("a change of this and all later occurrences (RANGE) is not supported: split the series.")
        return timed.local(other["RECURRENCE-ID"].dt)

    def _moved(self, other: ParsedEvent, timed: _Timed) -> datetime:
        """Return the new local start of a changed occurrence; one of another length cannot be kept."""
        moved = self._timed(other)
        if (moved.minutes, moved.is_whole_days) != (timed.minutes, timed.is_whole_days):
            raise Unusable(
                f"its occurrence that moved to {moved.start:{LOCAL_TIME}} has another length: split the series."
            )
        return timed.local(moved.start.replace(tzinfo=ZoneInfo(moved.zone)))


def _instant(local: datetime, zone: str) -> datetime:
    return local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
