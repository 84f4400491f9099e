"""Opening times of a target: its windows together, less its freezes. Arithmetic over rules, without a database.

Without any window a target is always open. Windows add up, whichever of environment, cluster and pool they are for; a
freeze wins over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.calendars.recurrence import Recurrence

WINDOW, FREEZE = "window", "freeze"
HORIZONS = tuple(timedelta(days=days) for days in (3, 14, 62, 400))
"""How far is looked ahead, nearest first: most windows are of this week. More than a year holds every yearly rule."""
FAR = timedelta(days=62)
"""A target that is open for so long counts as open without an end: no step takes as long, and to follow many rules
through a year would take seconds at each start."""


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """One rule, as evaluated."""

    name: str
    kind: str
    recurrence: Recurrence | None
    """None: its row cannot be read any more, such as one of a zone that no longer exists. Such a window never opens,
    and such a freeze never ends: a mistake must not start anything."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time, by the entry that began it (empty: none did)."""

    start: datetime
    end: datetime
    name: str = ""
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Opening:
    """A target's calendar at one moment."""

    is_open: bool
    current: Span | None = None
    """The open time, up to where it ends or to FAR; None: closed."""
    closes_at: datetime | None = None
    """None: closed, or open beyond FAR."""
    upcoming: Span | None = None
    """The next open time of a target that is closed; None: none within the horizon."""
    freeze: Span | None = None
    """The freeze that is in effect."""


def open_spans(entries: Sequence[CalendarEntry], begin: datetime, end: datetime) -> list[Span]:
    """Return the open times between two moments, in order, none touching another."""
    windows = [entry for entry in entries if entry.kind == WINDOW]
    opened = _merged(windows, begin, end) if windows else [Span(begin, end)]
    closed = frozen_spans(entries, begin, end)
    return [part for span in opened for part in _without(span, closed)]


def frozen_spans(entries: Iterable[CalendarEntry], begin: datetime, end: datetime) -> list[Span]:
    return _merged([entry for entry in entries if entry.kind == FREEZE], begin, end)


def opening_at(entries: Sequence[CalendarEntry], at: datetime) -> Opening:
    """Evaluate the calendar of one target."""
    if not entries:
        return Opening(is_open=True)
    freeze: Span | None = None
    for horizon in HORIZONS:
        end = at + horizon
        freeze = next((span for span in frozen_spans(entries, at, end) if span.start <= at), None)
        first = next(iter(open_spans(entries, at, end)), None)
        if first and first.start > at:
            return Opening(is_open=False, upcoming=first, freeze=freeze)
        if first and first.end < end:
            return Opening(is_open=True, current=first, closes_at=first.end)
        if first and horizon >= FAR:
            return Opening(is_open=True, current=first)
    return Opening(is_open=False, freeze=freeze)


def _merged(entries: Sequence[CalendarEntry], begin: datetime, end: datetime) -> list[Span]:
    """Return the union of entries within two moments; what overlaps or touches is one."""
    every: list[Span] = []
    for entry in entries:
        if rule := entry.recurrence:
            times = rule.occurrences(begin, end)
            every += [Span(max(t.start, begin), min(t.end, end), entry.name, rule.zone) for t in times]
        elif entry.kind == FREEZE:
            every.append(Span(begin, end, entry.name))
    out: list[Span] = []
    for span in sorted(every, key=lambda s: (s.start, s.end)):
        if out and span.start <= out[-1].end:
            last = out[-1]
            out[-1] = Span(last.start, max(last.end, span.end), last.name, last.zone)
        else:
            out.append(span)
    return out


def _without(span: Span, closed: Sequence[Span]) -> list[Span]:
    """Cut merged spans out of one."""
    out, start = [], span.start
    for gap in closed:
        if gap.end <= start or gap.start >= span.end:
            continue
        if gap.start > start:
            out.append(Span(start, gap.start, span.name, span.zone))
        start = gap.end
    if start < span.end:
        out.append(Span(start, span.end, span.name, span.zone))
    return out
