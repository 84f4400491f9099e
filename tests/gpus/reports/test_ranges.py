"""Time ranges: any that an address names is shown as it is written, and written as it is shown; the rest is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as some

from common.errors import Invalid
from gpus.reports import ranges
from gpus.reports.ranges import BANDS, DEVICES, MOST_POINTS, MOST_ROWS, History

NOW = datetime(2026, 11, 21, 12, 2, 30, tzinfo=UTC)


@pytest.fixture(autouse=True, scope="module")
def _frozen():
    patch = pytest.MonkeyPatch()
    patch.setattr(ranges, "now", lambda: NOW)
    yield
    patch.undo()


def refused(history: History, **params: str) -> dict[str, list[str]]:
    with pytest.raises(Invalid) as refusal:
        history.parse({name.rstrip("_"): value for name, value in params.items()})
    return refusal.value.fields


KINDS = some.sampled_from([BANDS, DEVICES])
MINUTES = some.integers(min_value=5, max_value=35 * 24 * 60)


@given(KINDS, MINUTES, MINUTES, some.booleans())
def test_an_address_and_the_range_that_it_asks_for_are_one_to_one(history, ago, length, compares):
    start = NOW.replace(second=0) - timedelta(minutes=min(ago + length, 35 * 24 * 60))
    params = {"from": ranges.iso(start), "to": ranges.iso(min(start + timedelta(minutes=length), NOW))}
    if history.can_compare and compares:
        params["compare"] = "before"
    shown = history.parse(params)
    assert shown.start <= start
    assert shown.end >= ranges.instant(params["to"])
    assert shown.end - shown.start <= timedelta(minutes=length, seconds=2 * shown.seconds)
    again = history.parse(dict(parse_qsl(shown.query)))
    assert (again.start, again.compares) == (shown.start, shown.compares)
    assert again.end == shown.end
    assert shown.length <= MOST_POINTS * shown.step
    assert shown.length <= MOST_ROWS * shown.row
    assert shown.step >= timedelta(seconds=shown.seconds)
    assert not shown.step % timedelta(seconds=shown.seconds)
    fine_since = NOW - timedelta(days=3)
    earliest = shown.before.start if shown.compares else shown.start
    assert shown.seconds == 3600 or earliest >= fine_since - timedelta(minutes=5)


@given(KINDS, MINUTES, MINUTES)
def test_every_neighbor_is_an_address_that_is_shown(history, ago, length):
    end = NOW - timedelta(minutes=min(ago, 34 * 24 * 60))
    start = max(end - timedelta(minutes=length), history.since)
    shown = history.custom(start, max(end, start + timedelta(minutes=5)))
    for words, other in ranges.neighbors(shown, history):
        if other is None:
            continue
        assert history.parse(dict(parse_qsl(other.query))).query == other.query, words
        if words == "Earlier":
            assert other.start < shown.start
        if words == "Later":
            assert other.end > shown.end
        if words == "Zoom out":
            assert (other.start <= shown.start, other.length > shown.length) == (True, True)
        if words == "Zoom in":
            assert (shown.start <= other.start, other.end <= shown.end) == (True, True)


def test_presets_are_addresses_and_end_with_the_step_under_way():
    for history in (BANDS, DEVICES):
        for name in history.presets:
            shown = history.parse({"window": name})
            assert shown == history.preset(name)
            assert NOW < shown.end <= NOW + shown.step
            assert shown.query == f"window={name}"
            exact = history.parse(dict(parse_qsl(shown.exact)))
            assert exact.start == shown.start
            assert exact.end <= shown.end
        assert history.parse({}) == history.preset(history.default)


def test_times_without_an_offset_are_those_of_the_zone_through_the_change_of_clocks():
    """Berlin's clocks went back on 25 October 2026 at 01:00 UTC, and forward on 29 March."""
    night = BANDS.parse({"from": "2026-10-25T00:00", "to": "2026-10-26T00:00", "zone": "Europe/Berlin"})
    assert (night.start.isoformat(), night.length) == ("2026-10-24T22:00:00+00:00", timedelta(hours=25))
    short = BANDS.parse({"from": "2026-03-29T00:00", "to": "2026-03-30T00:00", "zone": "Europe/Berlin"})
    assert short.length == timedelta(hours=23)
    twice = refused(BANDS, from_="2026-10-25T02:30", zone="Europe/Berlin")["from"][0]
    assert "2026-10-25T00:30Z or 2026-10-25T01:30Z" in twice
    assert "does not exist" in refused(BANDS, from_="2026-03-29T02:30", zone="Europe/Berlin")["from"][0]
    first, second = (
        BANDS.parse({"from": f"2026-10-25T02:30+0{hours}:00", "to": "2026-10-25T12:00Z", "zone": "Europe/Berlin"})
        for hours in (2, 1)
    )
    assert second.start - first.start == timedelta(hours=1), "an offset decides"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"from_": "2026-11-21T12:00Z", "to": "2026-11-21T12:00Z"}, "to"),
        ({"from_": "2026-11-21T12:00Z", "to": "2026-11-21T12:01Z"}, "to"),
        ({"from_": "2026-11-21T11:00Z", "to": "2026-11-21T12:06Z"}, "to"),
        ({"from_": "2026-11-21T12:30Z"}, "from"),
        ({"from_": "2024-11-20T00:00Z"}, "from"),
        ({"from_": "2025-01-01", "to": "2026-02-01"}, "to"),
        ({"from_": "0001-01-01T00:00Z"}, "from"),
        ({"from_": "9999-12-31T23:59-23:59"}, "from"),
        ({"from_": "2026-13-01"}, "from"),
        ({"from_": "٢٠٢٦-11-21"}, "from"),
        ({"from_": "2026-11-21T10:00+99:00"}, "from"),
        ({"from_": "\x00"}, "from"),
        ({"from_": "2026-11-21", "to": "x" * 5000}, "to"),
        ({"to": "2026-11-21T10:00Z"}, "from"),
        ({"from_": "2026-11-21", "zone": "../etc/passwd"}, "zone"),
        ({"from_": "2026-11-21", "zone": "europe/berlin"}, "zone"),
        ({"zone": "UTC"}, "zone"),
        ({"window": "24h", "to": "2026-11-21"}, "window"),
        ({"window": "4h"}, "window"),
        ({"compare": "yes"}, "compare"),
    ],
)
def test_what_is_no_range_is_refused_by_the_name_of_its_field(params, field):
    assert field in refused(BANDS, **params)


def test_devices_are_kept_for_less_and_not_compared():
    assert "SETPOINT_GPU_HOUR_DAYS" in refused(DEVICES, from_="2026-10-01")["from"][0]
    assert refused(DEVICES, compare="before").keys() == {"compare"}
