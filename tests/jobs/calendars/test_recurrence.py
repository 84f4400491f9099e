"""Laws of recurrence: times of rules are those of RFC 5545, over changes of clocks, and cost what is asked for."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jobs.calendars import rule_text
from jobs.calendars.open_times import FREEZE, WINDOW, CalendarEntry, opening_at
from jobs.calendars.recurrence import WEEKDAYS, Recurrence
from jobs.calendars.rule_text import LOCAL_TIME, Unreadable

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
CHANGES = {  # days around which clocks change
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "UTC": ("2026-03-01", "2028-02-29"),
}


def read(
    starts: str, rule: str = "", *, zone: str = "Europe/Berlin", minutes: int = 60, excluded: tuple[str, ...] = ()
):
    return rule_text.read(starts, zone, minutes, rule, excluded)


@st.composite
def rule_texts(draw: st.DrawFn) -> str:
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={frequency}"]
    is_long = frequency in ("MONTHLY", "YEARLY")
    if draw(st.booleans()):
        parts.append(f"INTERVAL={draw(st.integers(1, 5))}")
    has_month_days = frequency != "WEEKLY" and draw(st.booleans())
    if has_month_days:
        days = st.integers(-31, 31).filter(bool)
        parts.append(f"BYMONTHDAY={','.join(map(str, draw(st.lists(days, min_size=1, max_size=4, unique=True))))}")
    has_days = draw(st.booleans())
    if has_days:
        # Either each or some: the other library takes MO,1MO for 1MO only, RFC 5545 for each Monday.
        is_numbered = is_long and not has_month_days and draw(st.booleans())
        ordinals = st.sampled_from(["1", "2", "-1", "5"]) if is_numbered else st.just("")
        days = st.tuples(ordinals, st.sampled_from(WEEKDAYS)).map("".join)
        parts.append(f"BYDAY={','.join(draw(st.lists(days, min_size=1, max_size=4, unique=True)))}")
    if draw(st.booleans()):
        months = st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True)
        parts.append(f"BYMONTH={','.join(map(str, draw(months)))}")
    if is_long and (has_days or has_month_days) and draw(st.booleans()):
        parts.append(f"BYSETPOS={draw(st.sampled_from(['1', '-1', '2', '1,-1']))}")
    if draw(st.booleans()):
        parts.append(f"WKST={draw(st.sampled_from(WEEKDAYS))}")
    if draw(st.booleans()):
        parts.append(
            draw(st.sampled_from(["COUNT=1", "COUNT=7", "COUNT=40", "UNTIL=20270615T120000Z", "UNTIL=20280110"]))
        )
    return ";".join(parts)


def aligned(starts: str, rule: str, **fields) -> Recurrence | None:
    """Read it; where only the start is not of the rule, from the start that the message gives. None: never occurs."""
    try:
        return read(starts, rule, **fields)
    except Unreadable as error:
        if set(error.fields) != {"starts"}:
            return None
        return read(error.fields["starts"][0].split("Its first is ")[1].split(": start")[0], rule, **fields)


@settings(max_examples=150, deadline=None)
@given(rule=rule_texts(), day=st.integers(0, 500))
def test_local_starts_are_those_of_an_independent_library(rule, day):
    start = datetime(2026, 1, 1, 22, 30) + timedelta(days=day)
    recurrence = aligned(f"{start:{LOCAL_TIME}}", rule, zone="UTC")
    assume(recurrence)
    as_local = rule.replace("T120000Z", "T120000").replace("UNTIL=20280110", "UNTIL=20280110T235959")
    other = rrulestr(as_local, dtstart=recurrence.start)
    last = recurrence.start + timedelta(days=3 * 365)
    expected = list(other.between(recurrence.start, last, inc=True))
    assert list(recurrence.local_starts(recurrence.start.date(), last.date())) == [
        local for local in expected if local.date() <= last.date()
    ]
    middle = recurrence.start + timedelta(days=500)
    assert list(recurrence.local_starts(middle.date(), last.date())) == [
        t for t in expected if t.date() >= middle.date()
    ]


def minute_by_minute(entries, begin: datetime, minutes: int) -> list[bool]:
    """Return whether each minute of UTC is open, by walking local clocks forward: shares no code with the product."""
    starts = []
    for entry in entries:
        rule = entry.recurrence
        zone = ZoneInfo(rule.zone)
        wall = {rule.start + timedelta(days=i) for i in range(8)} - rule.excluded  # each is daily here
        instants = set()
        for local in wall:
            # The instants at which this zone's clock shows that time; where none does, as before the change.
            middle = local.replace(tzinfo=UTC)
            shows = [
                at
                for shift in range(-15 * 60, 15 * 60 + 1, 30)
                if (at := middle + timedelta(minutes=shift)).astimezone(zone).replace(tzinfo=None) == local
            ]
            if not shows:
                offset = (middle - timedelta(days=1)).astimezone(zone).utcoffset()
                shows = [middle - offset]
            instants.add(min(shows))
        starts.append((entry.kind, rule.minutes, instants))
    has_windows = any(kind == WINDOW for kind, *_ in starts)
    out = []
    covered = [(kind, s, s + timedelta(minutes=length)) for kind, length, instants in starts for s in instants]
    for minute in range(minutes):
        at = begin + timedelta(minutes=minute)
        covers = {kind for kind, first, end in covered if first <= at < end}
        out.append(FREEZE not in covers and (WINDOW in covers or not has_windows))
    return out


@st.composite
def calendars(draw: st.DrawFn):
    """A few daily windows and freezes around a change of clocks, and the moment from which to look."""
    zone = draw(st.sampled_from(ZONES))
    change = datetime.fromisoformat(draw(st.sampled_from(CHANGES[zone])))
    entries = []
    for number in range(draw(st.integers(1, 3))):
        clock = timedelta(minutes=30 * draw(st.integers(0, 47)))  # 02:00 to 03:00 is where clocks change
        start = change - timedelta(days=draw(st.integers(0, 2))) + clock
        length = draw(st.integers(1, 40)) * 30
        own = draw(st.sampled_from([zone, zone, "UTC"]))
        excluded = (f"{start + timedelta(days=1):{LOCAL_TIME}}",) if draw(st.booleans()) else ()
        recurrence = read(f"{start:{LOCAL_TIME}}", "FREQ=DAILY", zone=own, minutes=length, excluded=excluded)
        entries.append(CalendarEntry(f"r{number}", draw(st.sampled_from([WINDOW, WINDOW, FREEZE])), recurrence))
    return entries, change.replace(tzinfo=UTC) - timedelta(days=1)


@settings(max_examples=25, report_multiple_bugs=False)
@given(calendar=calendars(), offset=st.integers(0, 24 * 60))
def test_next_open_and_next_close_are_those_of_a_walk_minute_by_minute(calendar, offset):
    entries, begin = calendar
    days = 3
    walked = minute_by_minute(entries, begin, days * 24 * 60)
    for minute in (offset, offset + 611, offset + 1307):
        opening = opening_at(entries, begin + timedelta(minutes=minute))
        assert opening.is_open == walked[minute]
        later = next((i for i in range(minute, len(walked)) if walked[i] != walked[minute]), None)
        if later is None:
            continue
        when = begin + timedelta(minutes=later)
        assert (opening.closes_at if opening.is_open else opening.upcoming and opening.upcoming.start) == when


def test_a_start_that_clocks_skip_and_one_that_comes_twice_occur_once_each():
    skipped = read("2026-03-28T02:30", "FREQ=DAILY;COUNT=3")
    instants = [o.start for o in skipped.following(datetime(2026, 3, 27, tzinfo=UTC), 9)]
    assert instants == [datetime(2026, 3, d, h, 30, tzinfo=UTC) for d, h in ((28, 1), (29, 1), (30, 0))]
    doubled = read("2026-10-24T02:30", "FREQ=DAILY;COUNT=3")
    instants = [o.start for o in doubled.following(datetime(2026, 10, 23, tzinfo=UTC), 9)]
    assert instants == [datetime(2026, 10, d, h, 30, tzinfo=UTC) for d, h in ((24, 0), (25, 0), (26, 1))]


def test_a_window_is_as_long_when_clocks_change_as_on_other_days():
    night = read("2026-03-28T22:00", minutes=360)
    (time_of_it,) = night.following(datetime(2026, 3, 1, tzinfo=UTC), 5)
    assert time_of_it.end - time_of_it.start == timedelta(hours=6)
    assert time_of_it.end.astimezone(ZoneInfo("Europe/Berlin")).hour == 5  # the clock was put forward meanwhile


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ("FREQ=SECONDLY", "rule"),
        ("FREQ=MINUTELY;COUNT=1000000000", "rule"),
        ("FREQ=HOURLY", "rule"),
        ("FREQ=DAILY;COUNT=1000000000", "rule"),
        ("FREQ=DAILY;COUNT=" + "9" * 400, "rule"),
        ("FREQ=DAILY;INTERVAL=0", "rule"),
        ("FREQ=DAILY;INTERVAL=100000000", "rule"),
        ("FREQ=DAILY;UNTIL=99991231T235959Z", "rule"),
        ("FREQ=DAILY;UNTIL=20261332", "rule"),
        ("FREQ=DAILY;UNTIL=20200101", "rule"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "rule"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "rule"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31", "rule"),
        ("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=300", "rule"),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=TU", "rule"),
        ("FREQ=MONTHLY;INTERVAL=12;BYMONTH=4", "rule"),
        ("FREQ=WEEKLY;BYMONTHDAY=3", "rule"),
        ("FREQ=WEEKLY;BYDAY=2MO", "rule"),
        ("FREQ=WEEKLY;BYDAY=MO;BYSETPOS=1", "rule"),
        ("FREQ=DAILY;BYHOUR=1,2,3", "rule"),
        ("FREQ=YEARLY;BYEASTER=0", "rule"),
        ("FREQ=DAILY;FREQ=DAILY", "rule"),
        ("DAILY", "rule"),
        ("FREQ=DAILY;" * 100, "rule"),
        ("FREQ=WEEKLY;BYDAY=TU", "starts"),
        ("FREQ=DAILY;BYMONTHDAY=١", "rule"),
    ],
)
def test_a_rule_that_is_unbounded_empty_or_unsupported_is_refused_at_once(rule, field):
    began = time.thread_time()
    with pytest.raises(Unreadable) as refusal:
        read("2026-11-30T22:00", rule)  # a Monday
    assert set(refusal.value.fields) == {field}
    assert time.thread_time() - began < CPU_SECONDS


CPU_SECONDS = 5.0
"""Of this process, for what takes milliseconds; a search of each second up to the year 9999 never ends."""


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"starts": "9999-01-01T00:00"}, "starts"),
        ({"starts": "2026-02-30T00:00"}, "starts"),
        ({"starts": "2026-11-30T22:00Z"}, "starts"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"zone": "../../etc/passwd"}, "zone"),
        ({"minutes": 0}, "minutes"),
        ({"minutes": 10**12}, "minutes"),
        ({"excluded": ("tomorrow",)}, "excluded"),
        ({"excluded": ("2026-11-30T22:00",) * 501}, "excluded"),
        ({"excluded": ("2026-11-30T22:00",)}, "rule"),
    ],
)
def test_each_wrong_part_is_named(fields, name):
    with pytest.raises(Unreadable) as refusal:
        read(**({"starts": "2026-11-30T22:00"} | fields))
    assert set(refusal.value.fields) == {name}


def test_what_cannot_be_read_any_more_opens_nothing():
    at = datetime(2026, 11, 27, tzinfo=UTC)
    assert not opening_at([CalendarEntry("gone", WINDOW, None)], at).is_open
    assert not opening_at([CalendarEntry("gone", FREEZE, None)], at).is_open
    day_long = CalendarEntry("day", WINDOW, read("2026-11-01T00:00", "FREQ=DAILY", minutes=1440))
    assert opening_at([day_long], at).is_open
    assert not opening_at([day_long, CalendarEntry("gone", FREEZE, None)], at).is_open
    assert opening_at([], at).is_open
