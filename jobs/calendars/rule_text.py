"""Reading of a recurrence from its parts as people and calendars write them. All that is wrong is named at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from jobs.calendars.recurrence import FIRST_YEAR, FREQUENCIES, LAST_YEAR, WEEKDAYS, Recurrence

RULE_CHARACTERS = 500
MOST_COUNT = 10_000
MOST_INTERVAL = 400
MOST_EXCLUDED = 500
LEAST_MINUTES, MOST_MINUTES = 5, 92 * 24 * 60
"""Of one occurrence. Nothing useful fits into less; a freeze of more than a quarter is "until it is lifted"."""
MINUTES_OF_A_DAY = 1440
LOCAL_TIME = "%Y-%m-%dT%H:%M"
_DAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_PARTS = "FREQ, INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY, BYDAY, BYSETPOS and WKST"


class Unreadable(Exception):
    """Parts of a recurrence that are wrong: messages by field."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        super().__init__(" ".join(text for texts in fields.values() for text in texts))
        self.fields = dict(fields)


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """Return the names of all time zones."""
    return tuple(sorted(available_timezones()))


@lru_cache(maxsize=1024)
def read(
    starts: str,
    zone: str,
    minutes: int,
    rule: str,
    excluded: tuple[str, ...],
    *,
    added: tuple[str, ...] = (),
    is_whole_days: bool = False,
) -> Recurrence:
    """Read a recurrence; `starts`, `excluded` and `added` are local times, `rule` is an RRULE's value.
    Raises Unreadable.
    """
    errors: dict[str, list[str]] = {}
    start = _local(starts, "starts", errors)
    if start and not FIRST_YEAR <= start.year <= LAST_YEAR:
        errors["starts"] = [f"Must be in the years {FIRST_YEAR} to {LAST_YEAR}."]
    if zone not in zones():
        errors["zone"] = ["Must be an IANA time zone, such as Europe/Berlin or UTC."]
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        errors["minutes"] = [f"Must be {LEAST_MINUTES} to {MOST_MINUTES} minutes (92 days)."]
    if is_whole_days and (minutes % MINUTES_OF_A_DAY or (start and start.time() != time())):
        errors["whole_days"] = ["Needs a start at 00:00, and a length of whole days (1440 minutes each)."]
    left_out = _starts("excluded", excluded, errors)
    besides = _starts("added", added, errors)
    parts = _parts(rule, errors)
    if errors or start is None:
        raise Unreadable(errors)
    wanted = _RuleReader(parts, start, zone).fields(errors)
    if errors:
        raise Unreadable(errors)
    out = Recurrence(
        start, zone, minutes, excluded=left_out, added=tuple(sorted(besides)), is_whole_days=is_whole_days, **wanted
    )
    _check_whole(out)
    return out


def _check_whole(rule: Recurrence) -> None:
    if not rule.is_first():
        first = next(iter(rule.following(rule.at(rule.start), 1)), None)
        if first is None:
            raise Unreadable({"rule": ["No day fits this rule: it would never occur."]})
        day = first.start.astimezone(ZoneInfo(rule.zone))
        raise Unreadable({"starts": [f"The rule leaves this day out. Its first is {day:{LOCAL_TIME}}: start there."]})
    if not rule.following(rule.at(rule.start), 1):
        raise Unreadable({"rule": ["Nothing is left of it: it ends before it starts, or all of it is excluded."]})


def _local(text: str, name: str, errors: dict[str, list[str]]) -> datetime | None:
    try:
        return datetime.strptime(text, LOCAL_TIME)
    except ValueError:
        errors[name] = ["Must be a local time, such as 2026-11-27T22:00."]
        return None


def _starts(name: str, texts: Sequence[str], errors: dict[str, list[str]]) -> frozenset[datetime]:
    if len(texts) > MOST_EXCLUDED:
        errors[name] = [f"At most {MOST_EXCLUDED} dates."]
        return frozenset()
    starts = [_local(text, name, errors) for text in texts]
    if name in errors or not all(start and FIRST_YEAR <= start.year <= LAST_YEAR for start in starts):
        errors[name] = ["Each must be a local start, such as 2026-12-25T22:00."]
    return frozenset(start for start in starts if start)


def _parts(rule: str, errors: dict[str, list[str]]) -> dict[str, str]:
    if not rule:
        return {}
    if len(rule) > RULE_CHARACTERS:
        errors["rule"] = [f"At most {RULE_CHARACTERS} characters."]
        return {}
    parts: dict[str, str] = {}
    for part in rule.upper().removeprefix("RRULE:").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value or name in parts:
            errors["rule"] = ["Must be an RRULE of RFC 5545, such as FREQ=WEEKLY;BYDAY=MO,TU,FR, each part once."]
            return {}
        parts[name] = value
    return parts


@dataclass(slots=True)
class _RuleReader:
    parts: Mapping[str, str]
    start: datetime
    zone: str
    errors: list[str] = field(default_factory=list)

    def fields(self, errors: dict[str, list[str]]) -> dict[str, Any]:
        if not self.parts:
            return {}
        frequency = self.parts.get("FREQ", "")
        if frequency not in FREQUENCIES:
            errors["rule"] = [f"FREQ must be {', '.join(FREQUENCIES[:-1])} or {FREQUENCIES[-1]}: a day is the least."]
            return {}
        readers: dict[str, tuple[str, Callable[[str, str], Any]]] = {
            "INTERVAL": ("interval", lambda n, v: self._number(n, v, 1, MOST_INTERVAL)),
            "COUNT": ("count", lambda n, v: self._number(n, v, 1, MOST_COUNT)),
            "UNTIL": ("until", self._until),
            "BYMONTH": ("months", lambda n, v: self._numbers(n, v, 12, is_signed=False)),
            "BYMONTHDAY": ("month_days", lambda n, v: self._numbers(n, v, 31)),
            "BYDAY": ("days", self._days),
            "BYSETPOS": ("positions", lambda n, v: self._numbers(n, v, 366)),
            "WKST": ("week_start", self._weekday),
        }
        out: dict[str, Any] = {"frequency": frequency}
        for name, value in self.parts.items():
            if name in readers:
                target, reader = readers[name]
                out[target] = reader(name, value)
            elif name != "FREQ":
                self.errors.append(f"{name[:20]} is not supported: use {_PARTS}; the start gives the time of day.")
        self._check_combinations(frequency, out)
        if self.errors:
            errors["rule"] = self.errors
        return out

    def _check_combinations(self, frequency: str, out: Mapping[str, Any]) -> None:
        if {"COUNT", "UNTIL"} <= set(self.parts):
            self.errors.append("COUNT and UNTIL exclude each other.")
        days = out.get("days") or ()
        if any(ordinal for ordinal, _ in days) and (
            frequency not in ("MONTHLY", "YEARLY") or "BYMONTHDAY" in self.parts
        ):
            self.errors.append("A weekday with a number, such as 2TU, needs MONTHLY or YEARLY, without BYMONTHDAY.")
        if frequency == "WEEKLY" and "BYMONTHDAY" in self.parts:
            self.errors.append("BYMONTHDAY does not go with WEEKLY.")
        if "BYSETPOS" in self.parts and (
            frequency not in ("MONTHLY", "YEARLY") or not {"BYDAY", "BYMONTHDAY"} & set(self.parts)
        ):
            self.errors.append("BYSETPOS needs MONTHLY or YEARLY, and BYDAY or BYMONTHDAY.")

    def _number(self, name: str, value: str, least: int, most: int) -> int:
        if not value.isascii() or not value.isdigit() or len(value) > 9 or not least <= int(value) <= most:
            self.errors.append(f"{name} must be a whole number from {least} to {most:,}.")
            return least
        return int(value)

    def _numbers(self, name: str, value: str, most: int, *, is_signed: bool = True) -> tuple[int, ...]:
        numbers = []
        for text in value.split(","):
            digits = text.removeprefix("+").removeprefix("-") if is_signed else text
            if not digits.isascii() or not digits.isdigit() or len(digits) > 3 or not 1 <= int(digits) <= most:
                sign = f", or -1 to -{most} from the end" if is_signed else ""
                self.errors.append(f"{name} must be whole numbers from 1 to {most}{sign}.")
                return ()
            numbers.append(-int(digits) if text.startswith("-") else int(digits))
        return tuple(sorted(set(numbers)))

    def _days(self, name: str, value: str) -> tuple[tuple[int, int], ...]:
        days = []
        for text in value.split(","):
            match = _DAY.fullmatch(text)
            if match is None or (match[1] and not 1 <= abs(int(match[1])) <= 53):
                self.errors.append(f"{name} must be weekdays, such as MO,TU or 2TU (the second Tuesday) or -1FR.")
                return ()
            days.append((int(match[1] or 0), WEEKDAYS.index(match[2])))
        return tuple(sorted(set(days)))

    def _weekday(self, name: str, value: str) -> int:
        if value not in WEEKDAYS:
            self.errors.append(f"{name} must be one of {', '.join(WEEKDAYS)}.")
            return 0
        return WEEKDAYS.index(value)

    def _until(self, name: str, value: str) -> datetime | None:
        """A date counts to its end, and a time without Z is local."""
        hint = f"{name} must be a date or time up to {LAST_YEAR}, such as 20271231 or 20271231T210000Z."
        match = _UNTIL.fullmatch(value) if value.isascii() else None
        try:
            assert match
            year, month, day = int(match[1]), int(match[2]), int(match[3])
            time = (int(match[4]), int(match[5]), int(match[6])) if match[4] else (23, 59, 59)
            until = datetime(year, month, day, *time, tzinfo=UTC if match[7] else ZoneInfo(self.zone))
            if not FIRST_YEAR <= year <= LAST_YEAR:
                raise ValueError
        except (AssertionError, ValueError):
            self.errors.append(hint)
            return None
        return until.astimezone(UTC)
