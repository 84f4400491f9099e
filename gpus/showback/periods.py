"""Spans of whole days in UTC: a month as people write it, or from one day to another, and the time before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Case, DateField, Value, When

from common.clock import now
from common.errors import Invalid
from gpus.showback.prices import midnight

LONGEST = 366
_DAY = timedelta(days=1)
_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class Period:
    start: date
    end: date
    """The day after the last."""
    is_month: bool = False

    @property
    def last(self) -> date:
        return self.end - _DAY

    @property
    def is_running(self) -> bool:
        """Today is one of its days."""
        return today() < self.end

    @property
    def name(self) -> str:
        return f"{self.start:%Y-%m}" if self.is_month else f"{self.start}-to-{self.last}"

    @property
    def query(self) -> str:
        """Return the period as an address writes it."""
        return f"month={self.start:%Y-%m}" if self.is_month else f"from={self.start}&to={self.last}"

    @property
    def before(self) -> Period:
        """The month before, up to the same day while this one is running; else the same number of days before."""
        if not self.is_month:
            return Period(self.start - (self.end - self.start), self.start)
        start = month_of(self.start - _DAY).start
        if not self.is_running:
            return Period(start, self.start, True)
        return Period(start, min(self.start, start + (today() + _DAY - self.start)))

    @property
    def months(self) -> tuple[str, str]:
        """The months before and after this one's first day, as an address writes them; the second empty in the last."""
        following = month_of(self.start).end
        return f"{self.start.replace(day=1) - _DAY:%Y-%m}", "" if following > today() else f"{following:%Y-%m}"


def today() -> date:
    """UTC: the day in which roll-ups count."""
    return now().astimezone(UTC).date()


def kept_since() -> date:
    """The first day whose roll-ups are all kept."""
    return today() - timedelta(days=settings.SETPOINT_GPU_BAND_DAYS - 1)


def month_of(day: date) -> Period:
    start = day.replace(day=1)
    return Period(start, (start + timedelta(days=31)).replace(day=1), True)


def parse(month: str, start: str, last: str) -> Period:
    """Return the period of an address: `month`, or from `start` to `last`; this month without either. Raises Invalid,
    by the names month, from and to."""
    if month and (start or last):
        raise Invalid("Give a month, or from and to.", fields={"month": ["Leave it out where from and to are given."]})
    period = _span(start, last) if start or last else _month(month) if month else month_of(today())
    field = "month" if period.is_month else "from"
    if period.start > today():
        raise Invalid("Nothing is recorded yet.", fields={field: [f"It begins after today, {today()}."]})
    if period.start < kept_since() and not (period.is_month and period.end > kept_since()):
        reason = f"Roll-ups are kept since {kept_since()} (SETPOINT_GPU_BAND_DAYS)."
        raise Invalid("That is not kept any more.", fields={field: [reason]})
    return period


def _month(text: str) -> Period:
    match = _MONTH.fullmatch(text)
    if match is None or int(match[1]) < 2000:
        raise Invalid("That is no month.", fields={"month": ["Write a year and a month, such as 2026-11."]})
    return month_of(date(int(match[1]), int(match[2]), 1))


def _span(start: str, last: str) -> Period:
    first, final = _day("from", start), _day("to", last)
    if final < first:
        raise Invalid("That is no period.", fields={"to": ["It must not be before from."]})
    if (final - first).days >= LONGEST:
        raise Invalid("The period is too long.", fields={"to": [f"At most {LONGEST} days at once."]})
    return Period(first, final + _DAY)


def _day(name: str, text: str) -> date:
    try:
        if len(text) != 10:  # fromisoformat takes 20261101 and 2026-W45-1, too
            raise ValueError(text)
        return max(date(2000, 1, 1), min(date(9000, 1, 1), date.fromisoformat(text)))
    except ValueError:
        reason = "Write a day, such as 2026-11-30." if text else "Give both from and to: the first and the last day."
        raise Invalid("That is no day.", fields={name: [reason]}) from None


def since(column: str, first: date, changes: Sequence[date], *, is_day: bool = False) -> Case:
    """An annotation: the last of `first` and `changes`, ascending, that is not after the column, a time or a day."""
    whens: list[Any] = [
        When(**{f"{column}__gte": day if is_day else midnight(day)}, then=Value(day, DateField()))
        for day in reversed(changes)
    ]
    return Case(*whens, default=Value(first, DateField()), output_field=DateField())
