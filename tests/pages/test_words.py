"""Wording of times, counts and statuses on pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.template import Context, Template

from common import look
from common.templatetags import setpoint as words
from jobs.models import Plan, Rollout, Step

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def rendered(source: str, **context: Any) -> str:
    return Template(source).render(Context(context))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (24_600, "6 h 50 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (1_656_000, "19 d 4 h"),
        (31 * 86_400 + 7200, "31 d"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOON, "12:00"),
        (NOON + timedelta(days=1), "tomorrow 12:00"),
        (NOON - timedelta(days=1), "yesterday 12:00"),
        (NOON - timedelta(days=14, hours=8), "7 Nov 04:00"),
        (NOON - timedelta(days=400), "17 Oct 2025"),
    ],
)
def test_an_instant_is_as_short_as_it_is_clear(clock: Any, at: datetime, text: str) -> None:
    assert f">{text}</time>" in words.when(at)
    assert f'title="{at:%Y-%m-%d %H:%M:%S} UTC"' in words.when(at)


def test_an_age_says_past_and_future_and_never(clock: Any) -> None:
    assert ">8 s ago</time>" in words.ago(NOON - timedelta(seconds=8))
    assert ">in 2 h</time>" in words.ago(NOON + timedelta(hours=2))
    assert words.ago(None) == "never"


def test_the_browser_says_durations_in_the_same_words() -> None:
    """static/js/app.js repeats `duration`; its units and limits must not drift apart from these."""
    script = (Path(__file__).resolve().parents[2] / "static/js/app.js").read_text()
    body = re.search(r"const duration = .*?\n  };", script, re.DOTALL)
    assert body
    for part in (
        "${s} s",
        "${minutes} min",
        "${hours} h ${minutes % 60} min",
        "${days} d ${hours % 24} h",
        "days < 30",
    ):
        assert part in body[0]


@pytest.mark.parametrize(
    ("axis", "values"),
    [("plan", Plan.Status.values), ("operation", Rollout.Status.values), ("step", Step.Status.values)],
)
def test_every_status_has_its_own_look(axis: str, values: list[str]) -> None:
    assert not set(values) - set(look.AXES[axis])


def test_a_status_newer_than_the_table_shows_as_its_own_word() -> None:
    assert "Half-way".lower() in words.status("operation", "half-way").lower().replace(" ", "-")


def test_a_status_is_icon_and_word_and_never_color_alone() -> None:
    html = words.status("health", "degraded", "2 nodes")
    assert "#tabler-alert-triangle" in html
    assert "Degraded" in html
    assert "<em>2 nodes</em>" in html


def test_a_name_in_a_list_stays_whole_and_is_escaped() -> None:
    html = words.unbroken(["gpu-1", "<b>"])
    assert html == '<span class="nm">gpu-1</span>, <span class="nm">&lt;b&gt;</span>'


def test_the_filter_of_an_address_is_said_in_words() -> None:
    html = words.terms("cluster=atlas&gpu_product=H100+80GB&q=%3Cb%3E")
    assert re.sub(r"</?b[^>]*>", "", html) == "cluster atlas, gpu product H100 80GB, q &lt;b&gt;"


def test_the_worst_value_is_the_first_of_its_axis_that_occurs() -> None:
    assert words.worst({"compliant": 3, "unknown": 1}, "compliance") == "unknown"


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"pool": "train", "fabric": "ib"}}, "fabric=ib, pool=train"),
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}, "zone in (a, b)"),
        ({"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]}, "!spot"),
        ({}, "every node"),
    ],
)
def test_a_selector_reads_as_people_write_it(selector: dict[str, Any], text: str) -> None:
    assert words.selector(selector) == text


@pytest.mark.parametrize(
    ("condition", "is_good"),
    [
        ({"type": "Ready", "status": "True"}, True),
        ({"type": "Ready", "status": "False"}, False),
        ({"type": "MemoryPressure", "status": "False"}, True),
        ({"type": "RestartRequired", "status": "True"}, False),
    ],
)
def test_a_condition_is_judged_by_what_it_means(condition: dict[str, str], is_good: bool) -> None:
    assert ('class="st ok"' in words.condition(condition)) is is_good


def test_what_people_wrote_is_escaped_wherever_a_tag_shows_it() -> None:
    evil = '"><script>alert(1)</script>'
    tags = '{% status "health" x x x %}{% icon "check" "" x %}{% env x %}{% cls x %}{% share 1 2 x %}'
    html = rendered(tags + "{{ x|person }}{{ x|digest }}{{ x|what_happens }}", x=evil)
    assert "<script>" not in html
