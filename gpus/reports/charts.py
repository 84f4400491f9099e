"""State bands and sparklines as SVG, made by the server: they print, and need no script. The numbers are beside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from common import look
from common.templatetags import chart_data
from common.templatetags.chart_data import Series
from gpus.metrics.states import EFFECTIVE
from gpus.reports import ranges
from gpus.reports.ranges import TimeRange
from gpus.reports.state_bands import SHOWN, BandPoint, Over

HEIGHT, WIDTH, TOP = 170, 1000, 22
SPARK = 18
"""Height of a sparkline, in its own units."""
LETTER = 1.3
"""Percent of the width, about, that a letter of a rollout's name takes."""


def bands(over: Over) -> SafeString:
    """Empty where nothing is recorded."""
    if not over.points:
        return SafeString()
    before = over.comparison.points if over.comparison else []
    top = ceiling(max([point.total for point in over.points] + [point.gpus[EFFECTIVE] for point in before]))
    edge = format_html('<path class="ln before" d="{}"/>', "".join(_edge(over, before, top))) if before else ""
    inside = format_html("{}{}", _paths(over, top), edge)
    return frame(
        _data(over), _summary(over), top, inside, format_html("{}{}", time_labels(over.window), _rollouts(over))
    )


def frame(data: SafeString, summary: str, top: float, inside: SafeString, below: SafeString) -> SafeString:
    """Return a chart with its axis up to `top`: `inside` is in the plot's own units, `below` in pixels."""
    marks = [(TOP + HEIGHT - HEIGHT * part // 4, top * part / 4) for part in range(5)]
    return format_html(
        '<div class="hover" {}><div class="plot bands" role="img" aria-label="{}">'
        '<svg class="yax" height="{}" aria-hidden="true">{}</svg>'
        '<svg class="cht" height="{}" aria-hidden="true">{}<svg y="{}" height="{}" width="100%" '
        'viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>{}</svg></div></div>',
        data,
        summary,
        HEIGHT + 42,
        format_html_join(
            "", '<text x="100%" y="{}" text-anchor="end">{}</text>', ((y + 4, f"{value:,.0f}") for y, value in marks)
        ),
        HEIGHT + 42,
        format_html_join("", '<line class="gl" x1="0" x2="100%" y1="{}" y2="{}"/>', ((y, y) for y, _ in marks)),
        TOP,
        HEIGHT,
        WIDTH,
        HEIGHT,
        inside,
        below,
    )


def _data(over: Over) -> SafeString:
    """Return the figures for static/js/charts.js: of each state that occurs, and of the period before."""
    before = over.comparison
    series = []
    for state in SHOWN:
        now = placed(over.window, {point.start: point.gpus[state] for point in over.points})
        then = (
            placed(before.window, {p.start: p.gpus[state] for p in before.points}) if before and before.points else []
        )
        if any(now) or any(then):
            series.append(Series(look.appearance("gpu", state).word, _css(state), now, then))
    return data("over", over.window, series, "over")


def _edge(over: Over, before: Sequence[BandPoint], top: float) -> Iterator[str]:
    """The upper edge of what was effective in the period before, moved to where it compares."""
    assert over.comparison is not None
    moved = [BandPoint(point.start + over.window.length, point.gpus) for point in before]
    wide = WIDTH * over.window.step / over.window.length
    for run in _runs(moved, over.window.step):
        x = WIDTH * ((run[0].start - over.window.start) / over.window.length)
        for number, point in enumerate(run):
            y = HEIGHT - HEIGHT * point.gpus[EFFECTIVE] / top
            yield f"{'V' if number else f'M{x:.1f},'}{y:.1f}H{min(WIDTH, x + wide):.1f}"
            x += wide


def placed(window: TimeRange, values: Mapping[datetime, float]) -> list[float | None]:
    """Return one value for each step of the range."""
    steps = -(-window.length // window.step)
    return [values.get(window.start + number * window.step) for number in range(steps)]


def data(key: str, window: TimeRange, series: Iterable[Series], anchor: str) -> SafeString:
    """Attributes of a chart of the range, whose page has its picker at `anchor`."""
    attributes = chart_data.steps(key, window.start, window.step, window.length, series)
    return attributes + chart_data.zoom(anchor, ranges.up_to())


# ── Sparklines ────────────────────────────────────────────────────────────────────────────────────────────────────────
def sparkline(values: Sequence[float | None], top: float, label: str) -> SafeString:
    """Steps from 0 to `top`; what is None is hatched, for no line at all could be taken for a line at 0."""
    line, area = [], []
    for place, value in enumerate(values):
        if value is None:
            continue
        y = round(SPARK - SPARK * max(0.0, value) / top, 1)
        goes_on = place > 0 and values[place - 1] is not None
        line.append(f"{'V' if goes_on else f'M{place},'}{y}H{place + 1}")
        area.append(f"M{place},{SPARK}V{y}H{place + 1}V{SPARK}Z")
    return format_html(
        '<svg class="spark" height="{}" role="img" aria-label="{}">{}<svg height="100%" width="100%" '
        'viewBox="0 0 {} {}" preserveAspectRatio="none"><path class="in" d="{}"/><path class="on" d="{}"/></svg></svg>',
        SPARK,
        label,
        format_html_join("", '<rect class="f-none" x="{}%" width="{}%" height="100%"/>', _gaps(values)),
        len(values),
        SPARK,
        "".join(area),
        "".join(line),
    )


def _gaps(values: Sequence[float | None]) -> Iterator[tuple[str, str]]:
    """Yield each gap's start and width, in percent."""
    begun = 0
    for place, value in enumerate([*values, 0.0]):
        if value is not None:
            if place > begun:
                yield f"{100 * begun / len(values):.2f}", f"{100 * (place - begun) / len(values):.2f}"
            begun = place + 1


def ceiling(most: float) -> int:
    """A number that four lines divide."""
    return max(4, int(-(-most // 4)) * 4)


def _paths(over: Over, top: float) -> SafeString:
    """Each state lies over those that are stacked on it, so that it needs an upper edge only."""
    drawn = []
    for index in reversed(range(len(SHOWN))):
        shown = SHOWN[: index + 1]
        if any(point.gpus[SHOWN[index]] for point in over.points):
            drawn.append((_css(SHOWN[index]), "".join(_areas(over, shown, top))))
    return format_html_join("", '<path class="{}" d="{}"/>', drawn)


def _css(state: str) -> str:
    css = look.appearance("gpu", state).css
    return f"f-{css}"


def _areas(over: Over, shown: Sequence[str], top: float) -> Iterator[str]:
    """Steps, not slopes: each lasts as long as it is wide. Where nothing is recorded nothing is drawn."""
    wide = WIDTH * over.window.step / over.window.length
    for run in _runs(over.points, over.window.step):
        x = WIDTH * ((run[0].start - over.window.start) / over.window.length)
        yield f"M{x:.1f},{HEIGHT}"
        for point in run:
            y = HEIGHT - HEIGHT * sum(point.gpus[state] for state in shown) / top
            x += wide
            yield f"V{y:.1f}H{min(WIDTH, x):.1f}"
        yield f"V{HEIGHT}Z"


def _runs(points: Sequence[BandPoint], step: timedelta) -> Iterator[list[BandPoint]]:
    run: list[BandPoint] = []
    for point in points:
        if run and point.start - run[-1].start > step:
            yield run
            run = []
        run.append(point)
    yield run


def time_labels(window: TimeRange) -> SafeString:
    """Five times below a chart."""
    row = '<text x="{}%" y="{}" text-anchor="{}" data-at="{}" data-as="{}">{}</text>'
    return format_html_join("", row, _times(window))


def _times(window: TimeRange) -> Iterator[tuple[str, int, str, int, str, str]]:
    kind, form = _form(window.length)
    for part, anchor in ((0, "start"), (1, "middle"), (2, "middle"), (3, "middle"), (4, "end")):
        at = window.start + window.length * part / 4
        yield f"{part * 25}", HEIGHT + TOP + 16, anchor, round(at.timestamp()), kind, f"{at:{form}}".lstrip("0")


def _form(length: timedelta) -> tuple[str, str]:
    """Return the form of times below a chart, and its name for the browser, which writes them in its own zone."""
    if length <= timedelta(days=1):
        return "time", "%H:%M"
    return ("weekday", "%a %H:%M") if length <= timedelta(days=4) else ("day", "%d %b")


def _rollouts(over: Over) -> SafeString:
    """Draw a line for each rollout; of labels that would overlap, only the latest. All are in the table."""
    labels: list[tuple[str | int, ...]] = []
    free = 100.0
    for mark in reversed(over.marks):
        x, half = 100 * ((mark.at - over.window.start) / over.window.length), LETTER * len(mark.name) / 2
        anchor, right = ("end", x) if x + half > 100 else ("start", x + 2 * half) if x < half else ("middle", x + half)
        name = mark.name if right <= free else ""
        free = right - 2 * half if name else free
        at, below = (f"{x:.2f}%", f"{x:.2f}%"), TOP + HEIGHT
        began = round(mark.at.timestamp())
        labels.append((*at, TOP, below, *at, TOP - 4, below, began, mark.name, at[0], TOP - 7, anchor, name))
    return format_html_join(
        "",
        '<line class="rev-b" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        '<line class="rev" x1="{}" x2="{}" y1="{}" y2="{}" data-at="{}" data-mark="{}"/>'
        '<text class="rev-t" x="{}" y="{}" text-anchor="{}">{}</text>',
        labels,
    )


def _summary(over: Over) -> str:
    last = over.points[-1]
    states = ", ".join(
        f"{count:,.0f} {look.appearance('gpu', state).word.lower()}" for state, count in last.listed if count
    )
    return f"GPUs by state {_when(over.window)}; latest {states}, of {last.total:,.0f}. The table below has them."


def _when(window: TimeRange) -> str:
    return f"over {window.words}" if window.name else f"from {window.words}"
