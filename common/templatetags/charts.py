"""Charts of every page: bars, their legends, lines over days. Available in every template without a load.

A tag counts and places, and its template in `templates/charts/` draws: SVG whose positions are attributes, no style.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple, Protocol

from django import template

from common import look
from common.templatetags import chart_data
from common.templatetags.chart_data import Series
from common.templatetags.setpoint import Counts

register = template.Library()


# ── Bars: SVG without a viewBox, so that nothing is stretched ─────────────────────────────────────────────────────────
class Rect(NamedTuple):
    css: str
    x: str
    width: str
    """Both in percent of the bar."""


@register.inclusion_tag("charts/_bar.html")
def bar(axis: str, counts: Counts, css: str = "") -> dict[str, Any]:
    """All values of an axis as shares of their sum, best first unless they come ordered; the numbers are its label."""
    return _bar_of(axis, counts) | {"css": css}


@register.inclusion_tag("charts/_bar.html")
def share(
    part: float,
    total: float,
    label: str,
    css: str = "accent",
    *,
    also: float = 0,
    also_css: str = "none",
    size: str = "",
) -> dict[str, Any]:
    """`part` of `total` over an empty track, and `also` of it behind: what is taken, and what was gone already."""
    whole = max(total or 0, (part or 0) + (also or 0), 1)
    rects = _rects([(css, part or 0), (also_css, also or 0)], whole)
    return {"css": size, "said": label, "rects": rects, "has_track": True}


@register.inclusion_tag("charts/_bar.html")
def gpu_bar(bands: Sequence[tuple[str, int]], total: int, what: str) -> dict[str, Any]:
    """Some of the GPUs' states, of one length with the bar of all: a step of a funnel."""
    label = f"{sum(count for _, count in bands):,} of {total:,} {what}"
    rects = _rects([(look.appearance("gpu", name).css, count) for name, count in bands], total or 1)
    return {"said": label, "rects": rects, "has_track": True}


@register.inclusion_tag("charts/_key.html")
def key(axis: str, value: object, count: int) -> dict[str, Any]:
    """Legend of one part of a bar, with its number."""
    seen = look.appearance(axis, value)
    return {"css": _fill(seen.css), "word": seen.word.lower(), "count": count}


@register.inclusion_tag("charts/_rollup.html")
def rollup(axis: str, counts: Counts) -> dict[str, Any]:
    """The worst value with its count, over a bar of all values."""
    counts = dict(counts or {})
    worst = next((name for name in look.AXES[axis] if counts.get(name)), None)
    if worst is None:
        return {}
    return _bar_of(axis, counts) | {"seen": look.appearance(axis, worst), "count": counts[worst]}


def _bar_of(axis: str, counts: Counts) -> dict[str, Any]:
    ordered = None if isinstance(counts, Mapping) else [name for name, _ in counts or ()]
    table, counts = look.AXES[axis], dict(counts or {})
    ordered = ordered or [*reversed(list(table)), *(name for name in counts if name not in table)]
    ordered = sorted(ordered, key=lambda name: look.appearance(axis, name).css == "nil")  # nothing to judge comes last
    order = [name for name in ordered if counts.get(name)]
    total = sum(counts[name] for name in order)
    label = ", ".join(f"{counts[name]:,} {look.appearance(axis, name).word.lower()}" for name in order)
    parts: list[tuple[str, float]] = [(_fill(look.appearance(axis, name).css), counts[name]) for name in order]
    return {"said": label or "nothing to show", "rects": _rects(parts or [("unk", 1)], total or 1)}


def _rects(parts: Sequence[tuple[str, float]], total: float) -> list[Rect]:
    at, rects = 0.0, []
    for css, amount in parts:
        if amount > 0:
            width = 100 * amount / total
            rects.append(Rect(css, f"{at:.2f}", f"{max(width - 0.35, 0.35):.2f}"))  # a hairline of ground between parts
            at += width
    return rects


def _fill(css: str) -> str:
    return {"neu": "unk", "nil": "free"}.get(css, css)


# ── Trends: a day a point; a day without a count is a gap, never a zero ─────────────────────────────────────────────
class Trend(Protocol):
    """clusters.inventory.daily_counts.Trend."""

    @property
    def days(self) -> Sequence[date]: ...
    @property
    def counts(self) -> Sequence[int | None]: ...
    @property
    def totals(self) -> Sequence[int | None]: ...


class Run(NamedTuple):
    """Days in a row that were counted."""

    line: str
    """Points of a path: `0.0,24.0 L7.7,12.0`."""
    first_x: str
    last_x: str


PLOT_WIDTH = 1000
SPARK_WIDTH, SPARK_HEIGHT = 100, 24
ABOVE, BELOW = 18, 20
"""Units of a plot's height for half a line of numbers, and for the days."""


@register.inclusion_tag("charts/_spark.html")
def spark(seen: Trend, what: str) -> dict[str, Any]:
    """A small line without axes; its first and last numbers are its label."""
    top = max([1, *(total for total in seen.totals if total is not None)])
    return {"said": _trend_in_words(seen, what), "runs": _runs(seen.counts, top, SPARK_WIDTH, SPARK_HEIGHT)}


@register.inclusion_tag("charts/_plot.html")
def plot(seen: Trend, what: str, height: int = 110) -> dict[str, Any]:
    """A line over its area, with the number of nodes at the left and the days below."""
    top = max([2, *(total for total in seen.totals if total is not None)])
    levels = [(ABOVE + height - height * part // 2, part * top / 2) for part in range(3)]
    first, middle, last = seen.days[0], seen.days[len(seen.days) // 2], seen.days[-1]
    return {
        "said": _trend_in_words(seen, what),
        "data": chart_data.days(what, first, [Series(what, "f-accent", seen.counts)]),
        "height": height,
        "height_with_days": ABOVE + height + BELOW,
        "lines": [y for y, _ in levels],
        "values": [(y + 4, f"{value:,.0f}") for y, value in levels],
        "runs": _runs(seen.counts, top, PLOT_WIDTH, height),
        "days_at": ABOVE + height + BELOW - 4,
        "days": [("0", "start", _day(first)), ("50%", "middle", _day(middle)), ("100%", "end", _day(last))],
    }


def _runs(counts: Sequence[int | None], top: int, width: float, height: float) -> list[Run]:
    """Return the unbroken runs; the first day is at the left edge, the last at the right."""
    runs: list[list[tuple[str, str]]] = [[]]
    for at, count in enumerate(counts):
        if count is None:
            runs.append([])
        else:
            runs[-1].append((f"{width * at / max(len(counts) - 1, 1):.1f}", f"{height - height * count / top:.1f}"))
    return [_run(points) for points in runs if points]


def _run(points: Sequence[tuple[str, str]]) -> Run:
    """Return a run's path. A single point is drawn as a short dash: a line of no length is nothing."""
    if len(points) == 1:
        ((x, y),) = points
        points = [(f"{max(float(x) - 2, 0):.1f}", y), (f"{min(float(x) + 2, PLOT_WIDTH):.1f}", y)]
    return Run(" L".join(f"{x},{y}" for x, y in points), points[0][0], points[-1][0])


def _trend_in_words(seen: Trend, what: str) -> str:
    known = [(day, count) for day, count in zip(seen.days, seen.counts, strict=True) if count is not None]
    if not known:
        return f"{what}: nothing counted yet"
    first, last = known[0], known[-1]
    return f"{what}: {first[1]:,} on {_day(first[0])}, {last[1]:,} on {_day(last[0])}"


def _day(value: date) -> str:
    return f"{value.day} {value:%b}"
