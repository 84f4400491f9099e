"""Time ranges of history: presets, custom ones as an address writes them, and the steps in which each is drawn.

Every range begins and ends on whole rows of history, in UTC. An address has `window`, the name of a preset, or `from`
and `to`; times without an offset are those of `zone`. `compare=before` asks for the equally long period before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings

from common.clock import now
from common.errors import Invalid
from jobs.calendars.rule_text import zones

FINE, COARSE = 300, 3600
"""Seconds of a row: of `SETPOINT_GPU_BUCKET_DAYS`, and of all that is kept."""
MOST_POINTS, MOST_ROWS = 366, 31
"""Of a chart, and of the table behind it."""
SHORTEST = timedelta(minutes=5)
NAMES = ("window", "from", "to", "zone", "compare")
BEFORE = "before"
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_STEPS = tuple(
    [number * _MINUTE for number in (5, 10, 15, 30)]
    + [number * _HOUR for number in (1, 2, 3, 4, 6, 12)]
    + [number * _DAY for number in (1, 2, 3, 7, 14)]
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_HOW = "Write a time such as 2026-11-21T08:00Z, or 2026-11-21T09:00+01:00"


@dataclass(frozen=True, slots=True)
class TimeRange:
    start: datetime
    end: datetime
    """Of a preset, the end of the step under way."""
    seconds: int
    """Of the rows that it is read from."""
    step: timedelta
    """Of what is drawn."""
    row: timedelta
    """Of the table behind it."""
    name: str = ""
    """Of a preset."""
    words: str = ""
    compares: bool = False

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    @property
    def before(self) -> TimeRange:
        return replace(self, start=self.start - self.length, end=self.start, name="", compares=False)

    @property
    def instants(self) -> str:
        return _words(self.start, self.end)

    @property
    def query(self) -> str:
        """Return the range as an address writes it."""
        return f"window={self.name}{self._comparison}" if self.name else self.exact

    @property
    def exact(self) -> str:
        """Return the same without a preset: the address keeps its instants."""
        return f"from={iso(self.start)}&to={iso(min(self.end, up_to()))}{self._comparison}"

    @property
    def _comparison(self) -> str:
        return f"&compare={BEFORE}" if self.compares else ""


@dataclass(frozen=True, slots=True)
class Preset:
    words: str
    length: timedelta
    seconds: int
    step: timedelta
    row: timedelta

    def at(self, end: datetime, name: str) -> TimeRange:
        return TimeRange(end - self.length, end, self.seconds, self.step, self.row, name, self.words)


@dataclass(frozen=True, slots=True)
class History:
    """A kind of rows that is kept: its presets, for how long, and how much of it is read in fine steps."""

    presets: Mapping[str, Preset]
    default: str
    setting: str
    """Name of the setting that has the days that its hours are kept for."""
    most_fine: timedelta
    longest: timedelta
    can_compare: bool = True

    @property
    def since(self) -> datetime:
        """The first hour that is kept."""
        return floor(now() - timedelta(days=min(getattr(settings, self.setting), 20_000)), COARSE)

    def preset(self, name: str = "", *, compares: bool = False) -> TimeRange:
        preset = self.presets[name or self.default]
        chosen = preset.at(floor(now(), int(preset.step.total_seconds())) + preset.step, name or self.default)
        return replace(chosen, compares=compares)

    def custom(self, start: datetime, end: datetime, *, compares: bool = False) -> TimeRange:
        """Return the range of whole rows that has both: fine ones where they are kept, of the period before as well."""
        earliest = start - (end - start) if compares else start
        is_fine = end - start <= self.most_fine and earliest >= _fine_since()
        seconds = FINE if is_fine else COARSE
        start, end = floor(start, seconds), ceiling(end, seconds)
        step = _step(end - start, MOST_POINTS, timedelta(seconds=seconds))
        row = _step(end - start, MOST_ROWS, step)
        return TimeRange(start, end, seconds, step, row, "", _words(start, end), compares)

    def parse(self, params: Mapping[str, str]) -> TimeRange:
        """Return the range that an address asks for; the default where it has none. Raises Invalid, by NAMES."""
        window, start, end, zone, comparison = (params.get(name, "").strip() for name in NAMES)
        errors: dict[str, list[str]] = {}
        if comparison and not self.can_compare:
            errors["compare"] = ["Leave it out: single devices are not compared with the period before."]
        elif comparison not in ("", BEFORE):
            errors["compare"] = [f"Write {BEFORE}, or leave it out."]
        if window and (start or end):
            errors["window"] = ["Leave it out where from and to are given."]
        elif window and window not in self.presets:
            errors["window"] = [f"There is no such window; there are {', '.join(self.presets)}."]
        if not (start or end) and zone:
            errors["zone"] = ["Leave it out where from and to are not given."]
        if start or end:
            first, last = self._span(start, end, zone, errors)
        if errors:
            raise Invalid("That is no time range.", fields=errors)
        if start or end:
            return self.custom(first, last, compares=bool(comparison))
        return self.preset(window, compares=bool(comparison))

    def instants(self, params: Mapping[str, str]) -> tuple[datetime, datetime]:
        """Return `from` and `to` as they are, or up to now. Raises Invalid, by from, to and zone."""
        errors: dict[str, list[str]] = {}
        start, end, zone = (params.get(name, "").strip() for name in ("from", "to", "zone"))
        first, last = self._span(start, end, zone, errors)
        if errors:
            raise Invalid("That is no time range.", fields=errors)
        return first, last

    def _span(self, start: str, end: str, zone: str, errors: dict[str, list[str]]) -> tuple[datetime, datetime]:
        """Both are now where `errors` says why not. Without `to`, up to now."""
        latest = up_to()
        if zone and zone not in zones():
            errors["zone"] = [f"There is no time zone {zone[:40]!r}; write one such as Europe/Berlin, or UTC."]
            return latest, latest
        first = _instant("from", start, zone, errors) or latest
        last = (_instant("to", end, zone, errors) if end else None) or latest
        if {"from", "to"} & errors.keys():
            return first, last
        if why := self._why_not_from(first):
            errors["from"] = [why]
        elif why := _why_not_to(first, last, self.longest):
            errors["to"] = [why]
        return first, last

    def _why_not_from(self, first: datetime) -> str:
        if first >= up_to():
            return f"It is in the future: it is {iso(now())} now."
        if first < self.since:
            return f"History is kept since {iso(self.since)} ({self.setting})."
        return ""


def _why_not_to(first: datetime, last: datetime, longest: timedelta) -> str:
    if last <= first:
        return "It must be after from."
    if last > up_to():
        return f"It is in the future: it is {iso(now())} now. Leave it out for everything up to now."
    if last - first < SHORTEST:
        return "It must be at least five minutes after from."
    if last - first > longest:
        return f"At most {longest.days} days at once."
    return ""


# ── Times ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def iso(at: datetime) -> str:
    """Return the instant as addresses write it, by the minute, which every step begins with."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def floor(at: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, tz=UTC)


def ceiling(at: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(-(-at.timestamp() // seconds) * seconds, tz=UTC)


def up_to() -> datetime:
    """The end of the five minutes under way: the latest that a range may end."""
    return floor(now(), FINE) + timedelta(seconds=FINE)


def _fine_since() -> datetime:
    return now() - timedelta(days=min(settings.SETPOINT_GPU_BUCKET_DAYS, 20_000))


def instant(text: str, zone: str = "") -> datetime | None:
    """Return the instant; None where the text is none."""
    return _instant("", text, zone, {})


def _instant(name: str, text: str, zone: str, errors: dict[str, list[str]]) -> datetime | None:
    """Return the instant; None, with the reason in `errors`, where it is none, or is not just one in its zone."""
    try:
        if _TIME.fullmatch(text) is None:
            raise ValueError(text)
        parsed = datetime.fromisoformat(text)
    except ValueError:
        given = f"{text[:40]!r} is no time. " if text else ""
        errors[name] = [f"{given}{_HOW}."]
        return None
    if not 1971 <= parsed.year <= 9000:  # further out, no offset can be added to it
        errors[name] = ["Write a year between 1971 and 9000."]
        return None
    if parsed.tzinfo is not None:
        return parsed.astimezone(UTC)
    local = ZoneInfo(zone or "UTC")
    early, late = (parsed.replace(tzinfo=local, fold=fold).astimezone(UTC) for fold in (0, 1))
    if early == late:
        return early
    there_and_back = early.astimezone(local).replace(tzinfo=None) == parsed
    what = "comes twice" if there_and_back else "does not exist"
    errors[name] = [f"{text} {what} in {zone}, where clocks change. Write its offset: {iso(early)} or {iso(late)}."]
    return None


def _step(length: timedelta, most: int, least: timedelta) -> timedelta:
    """Return the shortest step of which at most so many make the length."""
    fitting = (step for step in _STEPS if step >= least and length <= most * step)
    return next(fitting, _STEPS[-1])


def _words(start: datetime, end: datetime) -> str:
    last = f"{end:%H:%M}" if start.date() == end.date() else f"{end.day} {end:%b %Y %H:%M}"
    return f"{start.day} {start:%b %Y %H:%M} to {last} UTC"


# ── What there is ─────────────────────────────────────────────────────────────────────────────────────────────────────
_FIVE = 5 * _MINUTE
_BOTH = {
    "24h": Preset("24 hours", _DAY, FINE, _FIVE, _HOUR),
    "7d": Preset("7 days", 7 * _DAY, COARSE, _HOUR, 6 * _HOUR),
    "30d": Preset("30 days", 30 * _DAY, COARSE, 2 * _HOUR, _DAY),
}
_HOUR_ALONE = Preset("1 hour", _HOUR, FINE, _FIVE, _FIVE)
BANDS = History(
    {"1h": _HOUR_ALONE, "6h": Preset("6 hours", 6 * _HOUR, FINE, _FIVE, 15 * _MINUTE), **_BOTH},
    default="24h",
    setting="SETPOINT_GPU_BAND_DAYS",
    most_fine=3 * _DAY,
    longest=366 * _DAY,
)
DEVICES = History(
    {"1h": _HOUR_ALONE, "4h": Preset("4 hours", 4 * _HOUR, FINE, _FIVE, 15 * _MINUTE), **_BOTH},
    default="4h",
    setting="SETPOINT_GPU_HOUR_DAYS",
    most_fine=30 * _HOUR,
    longest=35 * _DAY,
    can_compare=False,
)
"""Of single devices. Each step is a packed row to open: 30 hours of five minutes are 360 of them."""
INFERENCE = History(
    {name: DEVICES.presets[name] for name in ("1h", "4h", "24h", "7d")},
    default="4h",
    setting="SETPOINT_GPU_HOUR_DAYS",
    most_fine=6 * _HOUR,
    longest=8 * _DAY,
    can_compare=False,
)
"""Of deployments that serve: Prometheus reads every sample of it."""


# ── Neighbors ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def neighbors(shown: TimeRange, history: History) -> Sequence[tuple[str, TimeRange | None]]:
    """Return the ranges one step away; None where there is none: nothing is kept, or it is not over."""
    length, latest, since = shown.length, up_to(), history.since
    middle = shown.start + length / 2
    earlier = None if shown.start - length < since else (shown.start - length, shown.start)
    end = min(shown.end + length, latest)
    later = None if shown.end >= latest else (end - length, end)
    closer = None if length < 2 * timedelta(seconds=shown.seconds) else (middle - length / 4, middle + length / 4)
    wide_end = min(middle + length, latest)
    wide_start = max(wide_end - 2 * length, since)
    wide_end = min(max(wide_end, wide_start + 2 * length), latest)
    wider = None
    if wide_end - wide_start <= history.longest and wide_end - wide_start > length:
        wider = (wide_start, wide_end)
    named = (("Earlier", earlier), ("Later", later), ("Zoom in", closer), ("Zoom out", wider))
    return [(word, None if span is None else _neighbor(history, span, shown)) for word, span in named]


def _neighbor(history: History, span: tuple[datetime, datetime], shown: TimeRange) -> TimeRange:
    start, end = (floor(at, FINE) for at in span)
    return history.custom(start, max(end, start + SHORTEST), compares=shown.compares)
