"""Figures of a chart as attributes of its element, which static/js/charts.js reads out below the pointer.

A series is `word|unit|class|1,2.5,,3|values before`, rounded to a tenth as tables are; semicolons part them. Words,
units and classes are the product's own and have none of `|`, `;` and `,`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString


class Series(NamedTuple):
    word: str
    css: str
    """Class of its key."""
    values: Sequence[float | None]
    """One for each step; None: not known."""
    before: Sequence[float | None] = ()
    """Of the period that it is compared with, moved to the same steps."""
    unit: str = ""


def steps(key: str, start: datetime, step: timedelta, length: timedelta, series: Iterable[Series]) -> SafeString:
    """Return the attributes of a chart whose values last a step each; `key` tells it from others of the page."""
    begin, every, whole = (
        round(seconds) for seconds in (start.timestamp(), step.total_seconds(), length.total_seconds())
    )
    return format_html(
        'data-chart="{}" data-start="{}" data-step="{}" data-length="{}" data-series="{}"',
        key, begin, every, whole, _listed(series),
    )  # fmt: skip


def days(key: str, first: date, series: Iterable[Series]) -> SafeString:
    """Return the attributes of a chart with a point for each day of UTC, from edge to edge."""
    return format_html(
        'data-chart="{}" data-days data-start="{}" data-step="86400" data-series="{}"',
        key, round(datetime.combine(first, time(), UTC).timestamp()), _listed(series),
    )  # fmt: skip


def zoom(anchor: str, latest: datetime) -> SafeString:
    """Return the attributes of a chart whose page takes `from` and `to`, the second never after `latest`."""
    return format_html(' data-zoom="{}" data-latest="{}"', anchor, round(latest.timestamp()))


def _listed(series: Iterable[Series]) -> str:
    return ";".join(f"{s.word}|{s.unit}|{s.css}|{_short(s.values)}|{_short(s.before)}" for s in series)


def _short(values: Sequence[float | None]) -> str:
    return ",".join("" if value is None else f"{value:.1f}".removesuffix(".0") for value in values)
