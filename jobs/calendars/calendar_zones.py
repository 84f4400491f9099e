"""Time zones of an iCalendar file: the IANA zone that a TZID means, as Google, Outlook and Apple write it.

Rules keep a zone by its IANA name, whose future changes come with the time zone database; a VTIMEZONE is what one
program believed when it wrote the file. It is held against the zone, so that none is taken for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from icalendar import Timezone
from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from jobs.calendars import rule_text
from jobs.calendars.calendar_lines import Block

CHECKED = tuple(timedelta(days=days) for days in (0, 91, 182, 273))
"""After an event's start: of each season, so that clocks that change are noticed."""


MOST_ZONES, MOST_RULES = 40, 20
PLAIN = {"FREQ", "BYMONTH", "BYDAY", "BYMONTHDAY", "UNTIL", "WKST"}
"""Parts of an RRULE of a zone. BYMONTHDAY with BYDAY is how some write the last Sunday."""


class UnknownZone(Exception):
    """A TZID that means no IANA zone, or another than its VTIMEZONE says."""


class FileZones:
    def __init__(self, blocks: Sequence[Block]) -> None:
        self._defined: dict[str, Timezone] = {}
        for block in blocks[:MOST_ZONES]:
            if not _is_plain(block):
                continue
            try:
                zone = Timezone.from_ical(block.text)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                continue  # an event that names it is judged by the name
            if isinstance(zone, Timezone):
                self._defined[str(zone.get("TZID", ""))] = zone

    def iana(self, tzid: str, start: datetime) -> str:
        """Return the IANA name. `start`: local, of the event. Raises UnknownZone."""
        defined = self._defined.get(tzid)
        candidates = [tzid, *("/".join(tzid.split("/")[-n:]) for n in (3, 2) if tzid.count("/") >= n)]
        candidates += [str(defined.get("X-LIC-LOCATION", ""))] if defined else []
        candidates.append(WINDOWS_TO_OLSON.get(tzid, ""))
        name = next((c for c in candidates if c in rule_text.zones()), "")
        if not name:
            raise UnknownZone(
                f"TZID “{tzid[:80]}” is no IANA time zone, such as Europe/Berlin, and no zone of Windows: export the "
                "event with one of these."
            )
        if defined is not None and (moment := _disagreement(defined, name, start)):
            raise UnknownZone(
                f"TZID “{tzid[:80]}” means {name}, but its VTIMEZONE has another offset on {moment:%d %b %Y}."
            )
        return name


def _is_plain(block: Block) -> bool:
    """Return whether its rules are those of clocks, twice a year: to follow one of seconds would take hours."""
    rules = [line.partition(":")[2].upper() for line in block.lines if line.upper().startswith("RRULE")]
    parts = [dict(part.partition("=")[::2] for part in rule.split(";")) for rule in rules]
    return len(rules) <= MOST_RULES and all(
        rule.get("FREQ") == "YEARLY" and set(rule) <= PLAIN and len(rule.get("BYDAY", "").split(",")) == 1
        for rule in parts
    )


def _disagreement(defined: Timezone, name: str, start: datetime) -> datetime | None:
    """Return a local time at which the VTIMEZONE has another offset than the zone of this name."""
    try:
        zone = defined.to_tz(lookup_tzid=False)
        moments = [start.replace(hour=12, minute=0) + after for after in CHECKED]
        return next((m for m in moments if zone.utcoffset(m) != ZoneInfo(name).utcoffset(m)), None)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
        return None
