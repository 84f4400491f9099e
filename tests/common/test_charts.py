"""Bars and lines: their numbers are their label, and days without a count are gaps."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import pytest
from django.template import Context, Template

from clusters.inventory.daily_counts import Trend


def rendered(source: str, **context: Any) -> str:
    return Template(source).render(Context(context))


def trend(*counts: int | None, of: int = 8) -> Trend:
    days = tuple(date(2026, 11, 1) + timedelta(days=number) for number in range(len(counts)))
    return Trend(days, counts, tuple(None if count is None else of for count in counts))


def test_a_bar_carries_its_numbers_and_fills_its_width() -> None:
    html = rendered('{% bar "compliance" counts %}', counts={"compliant": 39, "drifted": 7, "unknown": 2})
    assert 'aria-label="39 compliant, 2 unknown, 7 drifted"' in html
    starts = [float(x) for x in re.findall(r'x="([\d.]+)%"', html)]
    widths = [float(x) for x in re.findall(r'width="([\d.]+)%"', html)]
    assert starts == sorted(starts)
    assert 99 < starts[-1] + widths[-1] <= 100


def test_a_bar_of_those_with_a_target_leaves_out_the_others() -> None:
    html = rendered('{% bar "compliance" counts|judged %}', counts={"compliant": 38, "drifted": 2, "unassigned": 4960})
    assert 'aria-label="38 compliant, 2 drifted"' in html
    assert html.count("<rect") == 2


def test_a_rollup_names_the_worst_that_occurs() -> None:
    html = rendered('{% rollup "health" counts %}', counts={"healthy": 46, "degraded": 2})
    assert "2 degraded" in html
    assert 'aria-label="46 healthy, 2 degraded"' in html
    assert "–" in rendered('{% rollup "health" counts %}', counts={"healthy": 0})


def test_a_share_lies_over_its_track_and_what_was_gone_already_behind_it() -> None:
    html = rendered('{% share 2 8 "taken" "warn" also=4 %}')
    rectangles = re.findall(r'<rect class="f-(\w+)"(?: x="([\d.]+)%")? width="([\d.]+)%"', html)
    assert rectangles == [("track", "", "100"), ("warn", "0.00", "24.65"), ("none", "25.00", "49.65")]


def test_a_step_of_a_funnel_is_of_one_length_with_the_bar_of_all() -> None:
    html = rendered('{% gpu_bar bands 8 "active" %}', bands=[("effective", 2)])
    assert 'aria-label="2 of 8 active"' in html
    assert 'width="24.65%"' in html


def test_a_legend_says_number_and_word() -> None:
    html = rendered('{% key "compliance" "unassigned" 1200 %}')
    assert "f-free" in html
    assert "1,200 not assigned" in html


def test_a_line_has_a_gap_where_nobody_counted() -> None:
    html = rendered('{% spark trend "Compliant nodes" %}', trend=trend(4, 8, None, None, 8))
    assert 'aria-label="Compliant nodes: 4 on 1 Nov, 8 on 5 Nov"' in html
    assert re.findall(r'd="([^"]*)"', html) == ["M0.0,12.0 L25.0,0.0", "M98.0,0.0 L102.0,0.0"]


def test_a_line_of_no_counts_says_so() -> None:
    html = rendered('{% spark trend "Compliant nodes" %}', trend=trend(None, None))
    assert 'aria-label="Compliant nodes: nothing counted yet"' in html
    assert "<path" not in html


@pytest.mark.parametrize(("height", "below"), [(84, 118), (110, 144)])
def test_a_plot_has_an_area_a_scale_and_its_days(height: int, below: int) -> None:
    html = rendered('{% plot trend "Compliant nodes" height %}', trend=trend(4, 8, 8), height=height)
    area = f"M0.0,{height / 2:.1f} L500.0,0.0 L1000.0,0.0 L1000.0,{height} 0.0,{height}Z"
    assert f'class="ar" d="{area}"' in html
    assert re.findall(r'text-anchor="end">([^<]*)<', html) == ["0", "4", "8", "3 Nov"]
    assert re.findall(rf'y="{below}" text-anchor="\w+">([^<]*)<', html) == ["1 Nov", "2 Nov", "3 Nov"]
