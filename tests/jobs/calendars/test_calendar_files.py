"""iCalendar files: exports of Outlook and Google are read exactly; what cannot be kept is refused by line."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from audit.models import Record
from common.errors import Invalid
from jobs.calendars import calendar_export, calendar_lines, rule_text
from jobs.calendars.calendar_file import FileEvents, read_events
from jobs.calendars.recurrence import Recurrence
from jobs.calendars.rule_text import LOCAL_TIME
from jobs.models import CalendarRule
from tests.factories import TokenClient
from tests.jobs.calendars.test_recurrence import CHANGES, ZONES, aligned, rule_texts
from tests.jobs.pages import browser, text_of
from tests.jobs.rest import fields_of

FILES = Path(__file__).parent / "ics"
EARLY = datetime(2026, 1, 1, tzinfo=UTC)


def recurrence(fields: dict[str, Any]) -> Recurrence:
    return rule_text.read(
        fields["starts"], fields["zone"], fields["minutes"], fields["rule"], tuple(fields["excluded"]),
        added=tuple(fields["added"]), is_whole_days=fields["whole_days"],
    )  # fmt: skip


def times(fields: dict[str, Any], limit: int = 60) -> list[str]:
    """Return starts and ends in UTC."""
    return [f"{o.start:%m-%d %H:%M} {o.end:%m-%d %H:%M}" for o in recurrence(fields).following(EARLY, limit)]


def event(*lines: str, zones: str = "", head: str = "") -> bytes:
    text = f"BEGIN:VCALENDAR\nVERSION:2.0\n{head}{zones}BEGIN:VEVENT\nUID:u1\n" + "\n".join(lines)
    return f"{text}\nEND:VEVENT\nEND:VCALENDAR\n".encode()


def test_an_export_of_outlook_is_read_with_its_exceptions_and_moved_dates():
    read = read_events((FILES / "outlook.ics").read_bytes(), "Europe/Berlin")
    assert read.refused == []
    weekly, year_end = (e.fields for e in read.events)
    assert (weekly["name"], weekly["zone"], weekly["minutes"]) == ("Training clusters, weekly", "Europe/Berlin", 240)
    starts = times(weekly)
    assert starts[0] == "03-04 21:00 03-05 01:00"
    assert starts[4] == "04-01 20:00 04-02 00:00"  # clocks went forward on 29 March
    assert starts[5] == "04-15 20:00 04-16 00:00"  # 8 April is left out
    assert "05-06 21:00 05-07 01:00" in starts
    assert "05-06 20:00 05-07 00:00" not in starts  # it was moved by an hour
    assert starts[-1] == "12-30 21:00 12-31 01:00"
    assert not any(text.startswith("12-23") for text in starts)
    assert times(year_end) == ["12-20 23:00 12-27 23:00"]


def test_an_export_of_google_is_read_with_dates_in_its_own_zone():
    read = read_events((FILES / "google.ics").read_bytes(), "")
    assert read.refused == []
    patch, thanks, july = (e.fields for e in read.events)
    starts = times(patch, 12)
    assert starts[0] == "03-11 01:00 03-11 04:30"  # daylight saving time began two days before
    assert not any(text.startswith(("11-11", "12-09")) for text in starts)
    assert times(thanks) == ["11-26 05:00 11-28 05:00"]
    assert (july["zone"], times(july)) == ("UTC", ["07-04 12:00 07-05 04:00"])


def test_a_day_is_as_long_as_its_zone_has_it():
    read = read_events(event("DTSTART;VALUE=DATE:20261024", "RRULE:FREQ=DAILY;COUNT=3", "SUMMARY:x"), "Europe/Berlin")
    assert times(read.events[0].fields) == [
        "10-23 22:00 10-24 22:00", "10-24 22:00 10-25 23:00", "10-25 23:00 10-26 23:00",
    ]  # fmt: skip


TIMED = ("DTSTART;TZID=Europe/Berlin:20261127T220000", "DTEND;TZID=Europe/Berlin:20261127T230000", "SUMMARY:x")
OTHER_OFFSET = (
    "BEGIN:VTIMEZONE\nTZID:Europe/Berlin\nBEGIN:STANDARD\nDTSTART:19700101T000000\nTZOFFSETFROM:+0500\n"
    "TZOFFSETTO:+0500\nEND:STANDARD\nEND:VTIMEZONE\n"
)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (event(*TIMED, "RRULE:FREQ=HOURLY"), "FREQ"),
        (event(*TIMED, "RRULE:FREQ=DAILY;BYHOUR=3"), "BYHOUR"),
        (event(*TIMED, "RRULE:FREQ=DAILY", "RRULE:FREQ=WEEKLY"), "more than once"),
        (event(*TIMED, "RRULE:FREQ=WEEKLY;BYDAY=XX"), "RRULE"),
        (event(*TIMED, "RRULE:FREQ=WEEKLY;BYDAY=MO"), "leaves this day out"),
        (event(*TIMED, "RDATE;VALUE=PERIOD:20261128T220000Z/PT1H"), "periods"),
        (event(*TIMED, "STATUS:CANCELLED"), "cancelled"),
        (event(*TIMED, "RECURRENCE-ID;TZID=Europe/Berlin:20261127T220000"), "does not have"),
        (event(*TIMED, zones=OTHER_OFFSET), "another offset"),
        (event("DTSTART:20261127T220000Z"), "no length"),
        (event("DTEND:20261127T220000Z"), "no DTSTART"),
        (event("DTSTART:2026-11-27", "DTEND:20261127T220000Z"), "DTSTART"),
        (event("DTSTART:20261127T220000", "DURATION:PT1H"), "time zone"),
        (event("DTSTART;VALUE=DATE:20261127"), "time zone"),
        (event("DTSTART:20261127T220000Z", "DURATION:PT1M"), "minutes"),
        (event("DTSTART:20261127T220000Z", "DURATION:-PT1H"), "minutes"),
        (event("DTSTART:20261127T220030Z", "DURATION:PT1H"), "whole minute"),
        (event("DTSTART;TZID=Mars/Olympus:20261127T220000", "DURATION:PT1H"), "Mars/Olympus"),
        (event("DTSTART:18991127T220000Z", "DURATION:PT1H"), "2000"),
        (event(*TIMED, "EXDATE:nonsense"), "EXDATE"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_line_uid_and_reason(content, word):
    read = read_events(content, "")
    assert read.events == []
    (refused,) = read.refused
    assert content.decode().split("\n")[refused.line - 1] == "BEGIN:VEVENT"
    assert refused.uid == "u1"
    assert word in refused.reason


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "event"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"BEGIN:VCALENDAR\0", "NUL"),
        (b"<html>", "no colon"),
        (b"BEGIN:VEVENT\nEND:VEVENT\n", "BEGIN:VCALENDAR"),
        (b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n", "line 2"),
        (b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n", "line 2"),
        (b"BEGIN:VCALENDAR\nEND:VCALENDAR\nEND:VCALENDAR\n", "Line 3"),
        (b"BEGIN:VCALENDAR\nEND:VCALENDAR\n", "event"),
        (b"x" * (calendar_lines.MOST_BYTES + 1), "KiB"),
        (b"BEGIN:VCALENDAR\n" + b"BEGIN:VEVENT\nEND:VEVENT\n" * 201 + b"END:VCALENDAR\n", "200"),
    ],
)
def test_rubbish_is_refused_as_a_whole(content, word):
    with pytest.raises(Invalid) as refusal:
        read_events(content, "")
    assert word in refusal.value.fields["file"][0]


def test_a_zone_that_changes_every_second_is_not_followed():
    zone = OTHER_OFFSET.replace("TZOFFSETFROM", "RRULE:FREQ=SECONDLY\nTZOFFSETFROM", 1)
    assert read_events(event(*TIMED, zones=zone), "").refused == []


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_or_refused_and_never_fails(data):
    content = bytearray((FILES / data.draw(st.sampled_from(["outlook.ics", "google.ics"]))).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=12))
    try:
        read = read_events(bytes(content), "UTC")
    except Invalid as error:
        named = set(error.fields)
    else:
        named = {"file"} if isinstance(read, FileEvents) else set()
    assert named == {"file"}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_export_and_import_keep_every_occurrence(data):
    zone = data.draw(st.sampled_from(ZONES))
    day = date.fromisoformat(data.draw(st.sampled_from(CHANGES[zone]))) + timedelta(days=data.draw(st.integers(-3, 3)))
    whole = data.draw(st.booleans())
    clock = "00:00" if whole else data.draw(st.sampled_from(["00:30", "01:59", "02:30", "03:00", "23:45"]))
    minutes = 1440 * data.draw(st.integers(1, 3)) if whole else data.draw(st.sampled_from([5, 90, 1440, 3000]))
    text = data.draw(rule_texts())
    rule = aligned(f"{day}T{clock}", text, zone=zone, minutes=minutes)
    assume(rule is not None)
    starts = list(rule.local_starts(rule.start.date(), rule.start.date() + timedelta(days=900)))
    left_out = data.draw(st.lists(st.sampled_from(starts[1:]), max_size=3, unique=True)) if starts[1:] else []
    besides = [
        rule.start + timedelta(days=n) for n in data.draw(st.lists(st.integers(1, 400), max_size=3, unique=True))
    ]
    row = CalendarRule(
        pk=1, name="x", kind="window", starts=f"{rule.start:{LOCAL_TIME}}", zone=zone, minutes=minutes, rule=text,
        excluded=[f"{at:{LOCAL_TIME}}" for at in left_out], added=[f"{at:{LOCAL_TIME}}" for at in besides],
        whole_days=whole,
    )  # fmt: skip
    fields = {
        name: getattr(row, name) for name in ("starts", "zone", "minutes", "rule", "excluded", "added", "whole_days")
    }
    read = read_events(calendar_export.export([row]), zone)
    assert read.refused == []
    (imported,) = read.events
    assert imported.fields["kind"] == "window"
    begin = rule.at(rule.start) - timedelta(days=2)
    before, after = recurrence(fields), recurrence(imported.fields)
    assert after.following(begin, 50) == before.following(begin, 50)


def test_the_page_and_rest_import_all_or_name_each_refused_event_and_export_again(world):
    client, page = TokenClient(world.admin), browser(world.admin)
    path = "/api/v1/calendar-rules/actions/import"
    mixed = (FILES / "google.ics").read_text().replace("RRULE:FREQ=MONTHLY;BYDAY=2TU", "RRULE:FREQ=HOURLY")
    refused = client.post(path, {"file": mixed, "kind": "freeze", "cluster": str(world.cluster.pk)})
    assert refused.status_code == 422
    assert "5t1k0gq2ahl9v3m7r8c6n4b2d0@google.com" in str(refused.json()["errors"])
    assert not CalendarRule.objects.exists()
    upload = SimpleUploadedFile("w.ics", mixed.encode())
    answer = page.post("/windows/import/", {"file": upload, "kind": "freeze", "cluster": str(world.cluster.pk)})
    assert answer.status_code == 422
    assert "5t1k0gq2ahl9v3m7r8c6n4b2d0@google.com" in text_of(answer.content.decode())
    assert not CalendarRule.objects.exists()

    some = client.post(path, {"file": mixed, "kind": "freeze", "pool": world.pool.pk, "skip_refused": True}).json()
    assert [rule["name"] for rule in some["created"]] == ["Thanksgiving", "July 4th"]
    assert [row["uid"] for row in some["refused"]] == ["5t1k0gq2ahl9v3m7r8c6n4b2d0@google.com"]
    assert {(row.kind, row.pool_id) for row in CalendarRule.objects.all()} == {("freeze", world.pool.pk)}
    assert Record.objects.filter(action="calendar-rule.create").count() == 2
    again = client.post(path, {"file": mixed, "kind": "freeze"})
    assert "There is a rule of this name" in str(again.json()["errors"])

    upload = SimpleUploadedFile("w.ics", (FILES / "outlook.ics").read_bytes())
    answer = page.post("/windows/import/", {"file": upload, "kind": "window", "zone": "Europe/Berlin"})
    assert answer.status_code == 302
    export = page.get("/windows/export.ics")
    assert export["Content-Type"].startswith("text/calendar")
    assert export.content == client.get("/api/v1/calendar-rules/export").content
    read = read_events(export.content, "UTC")
    assert {e.fields["name"]: e.fields["kind"] for e in read.events} == {
        row.name: row.kind for row in CalendarRule.objects.all()
    }
    assert page.get("/windows/").status_code == 200


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"zone": "Mars"}, "zone"),
        ({"kind": "x"}, "kind"),
        ({"file": ""}, "file"),
        ({"nope": 1}, "nope"),
        ({"pool": 999}, "pool"),
    ],
)
def test_bad_input_of_an_import_is_named_by_field(world, wrong, name):
    sent = {"file": (FILES / "google.ics").read_text(), "kind": "window"} | wrong
    answer = TokenClient(world.admin).post("/api/v1/calendar-rules/actions/import", sent)
    assert answer.status_code == 422
    assert set(fields_of(answer)) == {name}
    assert not CalendarRule.objects.exists()


def test_only_administrators_import(world):
    sent = {"file": (FILES / "google.ics").read_text(), "kind": "window"}
    assert TokenClient(world.operator).post("/api/v1/calendar-rules/actions/import", sent).status_code == 403
    upload = SimpleUploadedFile("w.ics", sent["file"].encode())
    assert browser(world.operator).post("/windows/import/", {"file": upload, "kind": "window"}).status_code == 422
    assert not CalendarRule.objects.exists()
