"""Quiet hours of a channel: weekly stretches of its own local time, in which only what is urgent is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

from notices.models import Channel

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_NAMES = tuple(
    zip(DAYS, ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"), strict=True)
)


def ends(channel: Channel, at: datetime) -> datetime | None:
    """Return when the quiet stretch that holds `at` is over, with all that follow it without a break.

    None: `at` is not in one. A stretch begins on its day at `quiet_from` and ends at `quiet_until`, on the next day
    where that is no later; both as the channel's zone shows them, so that a night in which clocks change is an hour
    longer or shorter.
    """
    end: datetime | None = None
    for begin, over in _stretches(channel, at):
        if begin <= (end or at) < over:
            end = over
    return end


def objections(channel: Channel) -> Iterator[tuple[str, str]]:
    """Yield field and reason of what is wrong with a channel's quiet hours."""
    times = (channel.quiet_from, channel.quiet_until)
    unknown = [day for day in channel.quiet_days if day not in DAYS]
    if unknown:
        yield "quiet_days", f"Must be of {', '.join(DAYS)}, and not {unknown[0][:20]!r}."
    if bool(channel.quiet_days) != (times[0] is not None) or (times[0] is None) != (times[1] is None):
        yield "quiet_days", "Quiet hours are days, a time from and a time until: give all three, or none."
        return
    if channel.quiet_zone not in available_timezones():
        yield "quiet_zone", "The name of a time zone, such as Europe/Berlin or UTC."
    if len(set(channel.quiet_days)) == len(DAYS) and times[0] == times[1]:
        yield (
            "quiet_until",
            "It would be quiet all week, and what is not urgent never sent. Turn the channel off instead.",
        )
    if channel.quiet_days and channel.kind == Channel.Kind.PAGERDUTY:
        yield (
            "quiet_days",
            "PagerDuty has its own: a service's support hours. Held back, an incident's end could miss it.",
        )


def _stretches(channel: Channel, at: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield begin and end, in UTC and in order, of the stretches that may hold `at` or follow one that does."""
    if not channel.quiet_days or channel.quiet_from is None or channel.quiet_until is None:
        return
    zone = ZoneInfo(channel.quiet_zone)
    today = at.astimezone(zone).date()
    for shift in range(-1, 8):
        day = today + timedelta(days=shift)
        if DAYS[day.weekday()] in channel.quiet_days:
            last = day if channel.quiet_until > channel.quiet_from else day + timedelta(days=1)
            begin, over = _instant(day, channel.quiet_from, zone), _instant(last, channel.quiet_until, zone)
            yield begin, over


def _instant(day: date, local: time, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, local, zone).astimezone(UTC)
