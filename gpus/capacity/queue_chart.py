"""Quota, use, held idle and waiting GPUs of queues over time as SVG, drawn as the chart of states is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from common.templatetags.chart_data import Series
from gpus.capacity.queue_report import Point, Report
from gpus.reports import charts
from gpus.reports.charts import HEIGHT, WIDTH
from gpus.reports.ranges import TimeRange

Value = Callable[[Point], float | None]
LINES: Sequence[tuple[str, str, Value, bool]] = (
    ("In use", "f-eff", lambda point: point.used, True),
    ("Of it held idle", "f-held", lambda point: point.idle, True),
    ("Quota", "ln setp", lambda point: point.quota, False),
    ("Waiting for GPUs", "ln warn", lambda point: point.pending, False),
)
"""Word, class, value, and whether it is an area: use lies below what of it is idle."""


def draw(report: Report) -> SafeString:
    """Empty where nothing is recorded. A value that is not known is a gap."""
    if not report.points:
        return SafeString()
    window = report.window
    known = [value(point) or 0.0 for point in [*report.points, *report.before] for _, _, value, _ in LINES]
    top = charts.ceiling(max(known))
    moved = {point.start + window.length: point.used for point in report.before}
    edge = format_html('<path class="ln before" d="{}"/>', _steps(window, moved, top, is_area=False)) if moved else ""
    lines = format_html_join("", '<path class="{}" d="{}"/>', _paths(report, top))
    data = charts.data("queues", window, _series(report), "queues")
    return charts.frame(data, _summary(report), top, format_html("{}{}", lines, edge), charts.time_labels(window))


def _series(report: Report) -> Iterator[Series]:
    for word, css, value, _ in LINES:
        now = charts.placed(report.window, _known(report.points, value))
        then = charts.placed(report.window.before, _known(report.before, value)) if report.before else []
        yield Series(word, css, now, then, "GPUs")


def _known(points: Sequence[Point], value: Value) -> dict[datetime, float]:
    return {point.start: number for point in points if (number := value(point)) is not None}


def _paths(report: Report, top: float) -> Iterator[tuple[str, str]]:
    for _, css, value, is_area in LINES:
        values: dict[datetime, float | None] = dict(_known(report.points, value))
        if values:
            yield css, _steps(report.window, values, top, is_area=is_area)


def _steps(window: TimeRange, values: dict[datetime, float | None], top: float, *, is_area: bool) -> str:
    """Steps, not slopes: each lasts as long as it is wide, and what is not recorded is not drawn."""
    drawn: list[str] = []
    before: datetime | None = None
    wide = WIDTH * (window.step / window.length)
    for start in sorted(start for start, value in values.items() if value is not None):
        x = WIDTH * ((start - window.start) / window.length)
        y = HEIGHT - HEIGHT * (values[start] or 0.0) / top
        follows = before is not None and start - before <= window.step + timedelta(seconds=1)
        if not follows:
            drawn.append(f"{f'V{HEIGHT}Z' if drawn and is_area else ''}M{x:.1f},{HEIGHT if is_area else round(y, 1)}")
        drawn.append(f"V{y:.1f}H{min(WIDTH, x + wide):.1f}")
        before = start
    return "".join(drawn) + (f"V{HEIGHT}Z" if drawn and is_area else "")


def _summary(report: Report) -> str:
    last = report.points[-1]
    listed = (f"{word.lower()} {number:,.0f}" for word, _, value, _ in LINES if (number := value(last)) is not None)
    return f"GPUs of queues over {report.window.words}; latest: {', '.join(listed)}. The table below has them."
