"""Recurrence of a window or freeze: a bounded subset of RFC 5545, in local time of one zone.

A day is the smallest period, so that a question about some weeks costs some weeks, wherever the rule began, and a rule
that fits no day ends. `dateutil.rrule` searches up to the year 9999 for the next occurrence of such a rule; it is the
oracle of the tests instead.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from heapq import merge
from itertools import count, islice
from zoneinfo import ZoneInfo

FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FIRST_YEAR, LAST_YEAR = 2000, 2099
"""Of a start: what lies beyond is a typing error, and bounds the search for the last of `COUNT`."""
SEARCH_DAYS = 100 * 366
"""How far the occurrences of one rule are counted."""
FARTHEST_OFFSET = timedelta(days=1)
"""More than any zone is ahead of or behind UTC."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time of a rule, as instants."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Times at which a rule applies. The length is elapsed time, also over a change of clocks (RFC 5545, 3.8.5.3)."""

    start: datetime
    """Local, without a zone: the first occurrence."""
    zone: str
    minutes: int
    frequency: str = ""
    """Empty: once."""
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    """In UTC; the last start that counts."""
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    """Negative: from the month's end."""
    days: tuple[tuple[int, int], ...] = ()
    """(ordinal, weekday); ordinal 0: each such weekday."""
    positions: tuple[int, ...] = ()
    week_start: int = 0
    excluded: frozenset[datetime] = frozenset()
    """Local starts that are left out (EXDATE)."""
    added: tuple[datetime, ...] = ()
    """Local starts besides, in order (RDATE)."""
    is_whole_days: bool = False
    """The length is in days of the zone, which may have 23 or 25 hours: of an event that lasts all day."""

    @property
    def length(self) -> timedelta:
        return timedelta(minutes=self.minutes)

    def at(self, local: datetime) -> datetime:
        """Return the instant of a local start. A time that clocks skip counts with the offset before the change, and
        of a time that comes twice the first counts (RFC 5545, 3.3.5); that is what fold 0 means.
        """
        return local.replace(tzinfo=ZoneInfo(self.zone), fold=0).astimezone(UTC)

    def end_of(self, local: datetime) -> datetime:
        """Return the instant at which the occurrence of a local start ends."""
        return self.at(local + self.length) if self.is_whole_days else self.at(local) + self.length

    def local_starts(self, first: date, last: date) -> Iterator[datetime]:
        """Yield local starts from one day to another, excluded ones left out, in order and each once."""
        added = (local for local in self.added if first <= local.date() <= last)
        before: datetime | None = None
        for local in merge(self._recurring(first, last), added):
            if local not in self.excluded and local != before:
                yield local
            before = local

    def _recurring(self, first: date, last: date) -> Iterator[datetime]:
        final = _last_counted(self) if self.count else None
        for local in _unbounded(self, first, last):
            if final and local > final:
                return
            if self.until and self.at(local) > self.until:
                return
            yield local

    def occurrences(self, begin: datetime, end: datetime) -> Iterator[Occurrence]:
        """Yield the occurrences that overlap the time from `begin` to `end`, by their start."""
        first, last = begin - self.length - FARTHEST_OFFSET, end + FARTHEST_OFFSET
        for local in self.local_starts(first.date(), last.date()):
            start, ends = self.at(local), self.end_of(local)
            if start < end and ends > begin:
                yield Occurrence(start, ends)

    def following(self, after: datetime, limit: int) -> list[Occurrence]:
        """Return the next occurrences that have not ended by `after`, `limit` of them at most."""
        out: list[Occurrence] = []
        begin, days = after, 32
        horizon = after + timedelta(days=min(SEARCH_DAYS, (date(LAST_YEAR + 1, 12, 31) - after.date()).days))
        while len(out) < limit and begin < horizon:
            end = min(horizon, begin + timedelta(days=days))
            fresh = (o for o in self.occurrences(begin, end) if o.start >= begin or begin == after)
            out += islice(fresh, limit - len(out))
            begin, days = end, days * 2
        return out

    def is_first(self) -> bool:
        """Return whether the start is one of the recurrence's own days, as RFC 5545 wants it."""
        return next(_unbounded(self, self.start.date(), self.start.date()), None) == self.start


@lru_cache(maxsize=512)
def _last_counted(rule: Recurrence) -> datetime | None:
    """Return the local start of the last of `COUNT`; None: not within a century."""
    assert rule.count
    first = rule.start.date()
    starts = _unbounded(rule, first, first + timedelta(days=SEARCH_DAYS))
    return next(islice(starts, rule.count - 1, None), None)


def _unbounded(rule: Recurrence, first: date, last: date) -> Iterator[datetime]:
    """Yield local starts by days, without COUNT, UNTIL and EXDATE."""
    clock = rule.start.time()
    first = max(first, rule.start.date())
    if not rule.frequency:
        if first == rule.start.date() <= last:
            yield rule.start
        return
    for number in count(_period_number(rule, first)):
        begins, days = _period(rule, number)
        if begins > last:
            return
        chosen = sorted(days)
        if rule.positions:
            places = {p - 1 if p > 0 else len(chosen) + p for p in rule.positions}
            chosen = [day for place, day in enumerate(chosen) if place in places]
        for day in chosen:
            if first <= day <= last:
                yield datetime.combine(day, clock)


def _period_number(rule: Recurrence, day: date) -> int:
    """Return the number of the period, counted from the start's, that holds this day or comes just before it."""
    start = rule.start.date()
    if rule.frequency == "DAILY":
        passed = (day - start).days
    elif rule.frequency == "WEEKLY":
        passed = (day - _week(rule, start)).days // 7
    elif rule.frequency == "MONTHLY":
        passed = (day.year - start.year) * 12 + day.month - start.month
    else:
        passed = day.year - start.year
    return max(0, passed // rule.interval)


def _week(rule: Recurrence, day: date) -> date:
    return day - timedelta(days=(day.weekday() - rule.week_start) % 7)


def _period(rule: Recurrence, number: int) -> tuple[date, list[date]]:
    """Return a period's first day, and its days that the rule chooses."""
    step, start = number * rule.interval, rule.start.date()
    if rule.frequency == "DAILY":
        day = start + timedelta(days=step)
        return day, [day] if _is_chosen(rule, day) else []
    if rule.frequency == "WEEKLY":
        begins = _week(rule, start) + timedelta(weeks=step)
        weekdays = {weekday for _, weekday in rule.days} or {start.weekday()}
        week = (begins + timedelta(days=i) for i in range(7))
        return begins, [d for d in week if d.weekday() in weekdays and (not rule.months or d.month in rule.months)]
    if rule.frequency == "MONTHLY":
        year, month = divmod(start.year * 12 + start.month - 1 + step, 12)
        begins = date(year, month + 1, 1)
        is_left_out = rule.months and begins.month not in rule.months
        return begins, [] if is_left_out else _days_of_month(rule, begins)
    begins = date(start.year + step, 1, 1)
    return begins, _days_of_year(rule, begins.year)


def _days_of_year(rule: Recurrence, year: int) -> list[date]:
    if rule.days and not rule.months and not rule.month_days:
        begins = date(year, 1, 1)
        return _of_weekdays(rule, [begins + timedelta(days=i) for i in range((date(year + 1, 1, 1) - begins).days)])
    months = rule.months or (range(1, 13) if rule.month_days else (rule.start.month,))
    return [day for month in months for day in _days_of_month(rule, date(year, month, 1))]


def _days_of_month(rule: Recurrence, begins: date) -> list[date]:
    length = monthrange(begins.year, begins.month)[1]
    every = [begins + timedelta(days=i) for i in range(length)]
    if not rule.month_days and not rule.days:
        return [every[rule.start.day - 1]] if rule.start.day <= length else []
    if not rule.month_days:
        return _of_weekdays(rule, every)
    return [day for day in every if _is_chosen(rule, day)]


def _of_weekdays(rule: Recurrence, every: list[date]) -> list[date]:
    """Choose weekdays of a month or a year, each of them or by their place in it."""
    out: set[date] = set()
    for ordinal, weekday in rule.days:
        alike = [day for day in every if day.weekday() == weekday]
        if not ordinal:
            out |= set(alike)
        elif abs(ordinal) <= len(alike):
            out.add(alike[ordinal - 1 if ordinal > 0 else ordinal])
    return list(out)


def _is_chosen(rule: Recurrence, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    if rule.days and day.weekday() not in {weekday for _, weekday in rule.days}:
        return False
    from_end = day.day - monthrange(day.year, day.month)[1] - 1
    return not rule.month_days or day.day in rule.month_days or from_end in rule.month_days
