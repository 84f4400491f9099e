"""Tags and filters of every page: icons, statuses, bars, ages, sizes. Available in every template without a load.

Longer than 300 lines because templates find tags by library: a flat list of small functions, none worth a second.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qsl

from django import template
from django.forms import BoundField
from django.templatetags.static import static
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

from common import look
from common.clock import now

register = template.Library()
NOTHING = "–"

Counts = Mapping[str, int] | Sequence[tuple[str, int]] | None
"""How many there are of each value of an axis."""


# ── Icons and statuses ────────────────────────────────────────────────────────────────────────────────────────────────
@register.simple_tag
@lru_cache(maxsize=2048, typed=True)  # a page has some two hundred; typed: what is safe is no other text's twin
def icon(name: str, css: str = "", label: str = "") -> SafeString:
    """One icon of the sprite. Without a `label` it is decoration and hidden from screen readers."""
    said = format_html('role="img" aria-label="{}"', label) if label else SafeString('aria-hidden="true"')
    return format_html(
        '<svg class="i{}" {}><use href="{}#tabler-{}"/></svg>',
        f" {css}" if css else "",
        said,
        static("vendor/icons.svg"),
        name,
    )


@register.simple_tag
def status(axis: str, value: object, note: object = "", word: object = "", css: str = "") -> SafeString:
    """Icon, word and color of one value of one axis: `{% status "health" "degraded" "2 nodes" css="pill" %}`."""
    seen = look.appearance(axis, value)
    extra = format_html(" <em>{}</em>", note) if note else ""
    return format_html(
        '<span class="st {}{}">{}{}{}</span>',
        seen.css,
        f" {css}" if css else "",
        icon(seen.icon),
        word or seen.word,
        extra,
    )


@register.simple_tag
def status_icon(axis: str, value: object, css: str = "") -> SafeString:
    seen = look.appearance(axis, value)
    return icon(seen.icon, css)


@register.simple_tag
def counted(axis: str, value: object, count: int) -> SafeString:
    """`4 succeeded`, with the value's icon and color."""
    return status(axis, value, word=f"{count:,} {look.appearance(axis, value).word.lower()}")


_OF_SIGN = {"+": ' class="add"', "-": ' class="del"', "@": ' class="at"'}


@register.simple_tag
def difference(lines: Iterable[tuple[str, str]]) -> SafeString:
    """Lines of a unified difference, (sign, text) with sign + - @ or a space.

    Not a template: of a chart with 2,000 objects its loop took more than half of a plan's page.
    """
    body = "".join(
        f"<span{_OF_SIGN.get(sign, '')}>{'' if sign == '@' else f'{sign} '}{escape(text)}</span>"
        for sign, text in lines
    )
    return SafeString(f'<pre class="diff" tabindex="0" aria-label="Difference">{body}</pre>')


@register.filter
def stage_class(value: object) -> str:
    return look.STAGE_CELLS.get(str(value), "")


@register.simple_tag
def condition(seen: Mapping[str, Any]) -> SafeString:
    """A Kubernetes condition. Pressure, trouble and things required are good when false; all else is good when true."""
    name, value = str(seen.get("type", "")), str(seen.get("status", "Unknown"))
    is_bad_news = name.endswith(("Pressure", "Unavailable", "Required", "Degraded", "Problem", "Deadlock"))
    if value not in ("True", "False"):
        return status("compliance", "unknown")
    is_good = (value == "False") == is_bad_news
    return status("check", "ok" if is_good else "warn", word=value)


@register.filter
def tone(value: object, axis: str) -> str:
    """The color class of a value: `<li class="{{ finding.severity|tone:'severity' }}">`."""
    return look.appearance(axis, value).css


@register.simple_tag
def cls(value: object) -> SafeString:
    """An apply class: what a change does to its node."""
    seen = look.APPLY_CLASSES.get(str(value)) or look.Appearance(str(value), "help-circle", "")
    return format_html('<span class="cls {}">{}{}</span>', seen.css, icon(seen.icon, "i-s"), seen.word)


@register.filter
def what_happens(value: object) -> str:
    return look.WHAT_HAPPENS.get(str(value), "")


@register.simple_tag
def env(value: object) -> SafeString:
    return format_html('<span class="env{}">{}</span>', " prod" if str(value) == "production" else "", value)


@register.simple_tag
def theme_now(value: object) -> look.Appearance:
    return look.THEMES.get(str(value or ""), look.THEMES[""])


# ── Bars: SVG without a viewBox, so that nothing is stretched; positions are attributes, no style ─────────────────────
def _rects(parts: Sequence[tuple[str, float]], total: float) -> SafeString:
    at, rects = 0.0, []
    for css, amount in parts:
        if amount > 0:
            width = 100 * amount / total
            rects.append((css, f"{at:.2f}%", f"{max(width - 0.35, 0.35):.2f}%"))  # a hairline of ground between parts
            at += width
    return format_html_join("", '<rect class="f-{}" x="{}" width="{}" height="100%"/>', rects)


@register.simple_tag
def bar(axis: str, counts: Counts, css: str = "") -> SafeString:
    """All values of an axis as shares of their sum, best first unless they come ordered; the numbers are its label."""
    ordered = None if isinstance(counts, Mapping) else [name for name, _ in counts or ()]
    table, counts = look.AXES[axis], dict(counts or {})
    ordered = ordered or [*reversed(list(table)), *(name for name in counts if name not in table)]
    ordered = sorted(ordered, key=lambda name: look.appearance(axis, name).css == "nil")  # nothing to judge comes last
    order = [name for name in ordered if counts.get(name)]
    total = sum(counts[name] for name in order)
    said = (
        ", ".join(f"{counts[name]:,} {look.appearance(axis, name).word.lower()}" for name in order) or "nothing to show"
    )
    parts: list[tuple[str, float]] = [(_fill(look.appearance(axis, name).css), counts[name]) for name in order]
    return _bar(css, said, _rects(parts or [("unk", 1)], total or 1))


@register.simple_tag
def share(
    part: float,
    total: float,
    label: str,
    css: str = "accent",
    *,
    also: float = 0,
    also_css: str = "none",
    size: str = "",
) -> SafeString:
    """`part` of `total` over an empty track, and `also` of it behind: what is taken, and what was gone already."""
    whole = max(total or 0, (part or 0) + (also or 0), 1)
    rects = _rects([(css, part or 0), (also_css, also or 0)], whole)
    return _bar(size, label, format_html('<rect class="f-track" width="100%" height="100%"/>{}', rects))


@register.simple_tag
def gpu_bar(bands: Sequence[tuple[str, int]], total: int, what: str) -> SafeString:
    """Some of the GPUs' states, of one length with the bar of all: a step of a funnel."""
    said = f"{sum(count for _, count in bands):,} of {total:,} {what}"
    rects = _rects([(look.appearance("gpu", name).css, count) for name, count in bands], total or 1)
    return _bar("", said, format_html('<rect class="f-track" width="100%" height="100%"/>{}', rects))


def _bar(css: str, label: str, rects: SafeString) -> SafeString:
    return format_html('<svg class="bar{}" role="img" aria-label="{}">{}</svg>', f" {css}" if css else "", label, rects)


def _fill(css: str) -> str:
    return {"neu": "unk", "nil": "free"}.get(css, css)


@register.simple_tag
def key(axis: str, value: object, count: int) -> SafeString:
    """Legend of one part of a bar, with its number."""
    seen = look.appearance(axis, value)
    return format_html(
        '<span class="key"><svg aria-hidden="true"><rect class="f-{}" width="100%" height="100%"/></svg>{} {}</span>',
        _fill(seen.css),
        f"{count:,}",
        seen.word.lower(),
    )


@register.simple_tag
def rollup(axis: str, counts: Counts) -> SafeString:
    """The worst value with its count, over a bar of all values."""
    counts = dict(counts or {})
    worst = next((name for name in look.AXES[axis] if counts.get(name)), None)
    if worst is None:
        return format_html('<span class="dim">{}</span>', NOTHING)
    seen = look.appearance(axis, worst)
    said = format_html(
        '<span class="st {}">{}{} {}</span>', seen.css, icon(seen.icon), f"{counts[worst]:,}", seen.word.lower()
    )
    return format_html('{}<div class="mini">{}</div>', said, bar(axis, counts))


@register.filter
def linked_to(counts: Counts, axis: str) -> str:
    """The worst value that occurs, for a link to the list of it; empty when only the best does."""
    found = worst(counts, axis)
    return "" if found in ("compliant", "healthy", "unassigned") else found


@register.filter
def worst(counts: Counts, axis: str) -> str:
    """The worst value of an axis that occurs in `counts`; empty when none does."""
    found = dict(counts or {})
    return next((name for name in look.AXES[axis] if found.get(name)), "")


@register.filter
def judged(counts: Counts) -> dict[str, int]:
    """Counts without those that have no target: the bar below "38 of 40 with a target"."""
    return {name: count for name, count in dict(counts or {}).items() if name != "unassigned"}


@register.filter
def unbroken(names: Iterable[object]) -> SafeString:
    """Names with commas between, each of which stays whole: lines break between them, not at their hyphens."""
    return format_html_join(", ", '<span class="nm">{}</span>', ((name,) for name in names))


@register.filter
def terms(query: str) -> SafeString:
    """The filter of an address in words: `cluster atlas, compliance drifted`."""
    return format_html_join(", ", "{} <b>{}</b>", ((n.replace("_", " "), v) for n, v in parse_qsl(query)))


@register.filter
def parts(counts: Counts, axis: str) -> list[tuple[str, str, int]]:
    """(value, word, count) of what occurs, worst first: for chips and legends."""
    table, counts = look.AXES[axis], dict(counts or {})
    names = [n for n in table if counts.get(n)] + [n for n in counts if n not in table and counts[n]]
    return [(name, look.appearance(axis, name).word, counts[name]) for name in names]


@register.filter
def sign(operator: str) -> str:
    """≥ for >=."""
    return look.sign(operator)


@register.filter
def sentence(counts: Counts, axis: str) -> str:
    """`7 drifted, 2 unknown`: all but the best value."""
    best = list(look.AXES[axis])[-1] if axis != "compliance" else "compliant"
    said = [f"{count:,} {word.lower()}" for name, word, count in parts(counts, axis) if name != best]
    return ", ".join(said)


# ── Trends: a day a point; where nobody counted there is a gap, never a zero ─────────────────────────────────────────
class Trend(Protocol):
    """clusters.inventory.daily_counts.Trend."""

    @property
    def days(self) -> Sequence[date]: ...
    @property
    def counts(self) -> Sequence[int | None]: ...
    @property
    def totals(self) -> Sequence[int | None]: ...


def _runs(counts: Sequence[int | None], top: int, width: float, height: float) -> list[list[str]]:
    """Points `x,y` of each unbroken run; the first day stands at the left edge, the last at the right."""
    runs: list[list[str]] = [[]]
    for at, count in enumerate(counts):
        if count is None:
            runs.append([])
        else:
            x = width * at / max(len(counts) - 1, 1)
            runs[-1].append(f"{x:.1f},{height - height * count / top:.1f}")
    return [run for run in runs if run]


def _said(seen: Trend, what: str) -> str:
    known = [(day, count) for day, count in zip(seen.days, seen.counts, strict=True) if count is not None]
    if not known:
        return f"{what}: nothing counted yet"
    first, last = known[0], known[-1]
    return f"{what}: {first[1]:,} on {_day(first[0])}, {last[1]:,} on {_day(last[0])}"


def _day(value: date) -> str:
    return f"{value.day} {value:%b}"


@register.simple_tag
def spark(seen: Trend, what: str) -> SafeString:
    """A small line without axes; its first and last numbers are its label."""
    top = max([1, *(total for total in seen.totals if total is not None)])
    lines = format_html_join(
        "", '<path class="ln" d="M{}"/>', ((" L".join(_wide(run)),) for run in _runs(seen.counts, top, 100, 24))
    )
    return format_html(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 -2 100 28" preserveAspectRatio="none">{}</svg>',
        _said(seen, what),
        lines,
    )


def _wide(run: list[str]) -> list[str]:
    """A single point is drawn as a short dash: a line of no length is nothing."""
    if len(run) > 1:
        return run
    x, y = run[0].split(",")
    return [f"{max(float(x) - 2, 0):.1f},{y}", f"{min(float(x) + 2, 1000):.1f},{y}"]


@register.simple_tag
def plot(seen: Trend, what: str, height: int = 110) -> SafeString:
    """A line over its area, with the number of nodes at the left and the days below."""
    top = max([2, *(total for total in seen.totals if total is not None)])
    runs = _runs(seen.counts, top, 1000, height)
    areas = format_html_join(
        "",
        '<path class="ar" d="M{} L{},{} {},{}Z"/><path class="ln" d="M{}"/>',
        (
            (" L".join(wide), wide[-1].split(",")[0], height, wide[0].split(",")[0], height, " L".join(wide))
            for wide in map(_wide, runs)
        ),
    )
    marks = [(18 + height - height * part // 2, part * top / 2) for part in range(3)]
    values = format_html_join(
        "", '<text x="100%" y="{}" text-anchor="end">{}</text>', ((y + 4, f"{value:,.0f}") for y, value in marks)
    )
    lines = format_html_join("", '<line class="gl" x1="0" x2="100%" y1="{}" y2="{}"/>', ((y, y) for y, _ in marks))
    middle = seen.days[len(seen.days) // 2]
    days = format_html_join(
        "",
        '<text x="{}" y="{}" text-anchor="{}">{}</text>',
        (
            (x, height + 34, anchor, _day(day))
            for x, anchor, day in (
                ("0", "start", seen.days[0]),
                ("50%", "middle", middle),
                ("100%", "end", seen.days[-1]),
            )
        ),
    )
    return format_html(
        '<div class="plot" role="img" aria-label="{}"><svg class="yax" height="{}" aria-hidden="true">{}</svg>'
        '<svg class="cht" height="{}" aria-hidden="true">{}<svg y="18" height="{}" width="100%" '
        'viewBox="0 0 1000 {}" preserveAspectRatio="none">{}</svg>{}</svg></div>',
        _said(seen, what),
        height + 38,
        values,
        height + 38,
        lines,
        height,
        height,
        areas,
        days,
    )


# ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
@register.filter
def duration(value: timedelta | float | None) -> str:
    """Duration in at most two units: `12 s`, `25 min`, `6 h 50 min`, `19 d 4 h`."""
    if value is None:
        return NOTHING
    seconds = int(value.total_seconds() if isinstance(value, timedelta) else value)
    seconds = max(seconds, 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 and days < 30 else f"{days} d"


@register.filter
def stopwatch(value: float | None) -> str:
    """Time in a stage: `0:01`, `12:46`, `1:02:46`."""
    seconds = max(int(value or 0), 0)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


@register.filter
def age(value: datetime | None) -> str:
    """Age without the word "ago": `41 min`."""
    return duration(now() - value) if value else NOTHING


@register.filter
def lasting(start: datetime | None, end: datetime | None) -> str:
    """Duration from one instant to another."""
    return duration(end - start) if start and end else NOTHING


@register.filter
def ago(value: datetime | None) -> str | SafeString:
    """`8 s ago`, kept true in the browser by static/js/app.js; `in 3 h` when still to come."""
    if value is None:
        return "never"
    return _time(value, relative(value), ticking=True)


def relative(value: datetime) -> str:
    passed = (now() - value).total_seconds()
    return f"in {duration(-passed)}" if passed < 0 else f"{duration(passed)} ago"


@register.filter
def when(value: datetime | None) -> str | SafeString:
    """The instant, as short as it is clear: `08:43`, `tomorrow 08:43`, `7 Nov 03:18`, `7 Nov 2025`. UTC."""
    if value is None:
        return NOTHING
    today = now().date()
    days = (value.date() - today).days
    clock, day = f"{value:%H:%M}", f"{value.day} {value:%b}"
    if abs(days) <= 1:
        text = {-1: f"yesterday {clock}", 0: clock, 1: f"tomorrow {clock}"}[days]
    elif value.year == today.year or abs(days) < 180:
        text = f"{day} {clock}"
    else:
        text = f"{day} {value.year}"
    return _time(value, text)


@register.filter
def day(value: datetime | None) -> str | SafeString:
    """The instant where there is little room: `08:43` of today, else `7 Nov`, with the year when it is another."""
    if value is None:
        return NOTHING
    today = now().date()
    if value.date() == today:
        return _time(value, f"{value:%H:%M}")
    return _time(value, f"{value.day} {value:%b}" + (f" {value.year}" if value.year != today.year else ""))


@register.filter
def clock(value: datetime | None) -> str | SafeString:
    """`09:15:22`, for logs of today; with the day before it otherwise."""
    if value is None:
        return NOTHING
    return f"{value:%H:%M:%S}" if value.date() == now().date() else f"{value.day} {value:%b} {value:%H:%M:%S}"


def _time(value: datetime, text: str, *, ticking: bool = False) -> SafeString:
    return format_html(
        '<time datetime="{}" title="{} UTC"{}>{}</time>',
        value.isoformat(timespec="seconds"),
        f"{value:%Y-%m-%d %H:%M:%S}",
        SafeString(" data-ago") if ticking else "",
        text,
    )


# ── Text ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
@register.filter
def digest(value: str | None) -> str:
    """`sha256:9f2c41d7…`"""
    name, _, hexes = (value or "").rpartition(":")
    return f"{name + ':' if name else ''}{hexes[:8]}…" if len(hexes) > 8 else (value or NOTHING)


@register.filter
def thousands(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,}"


@register.filter
def person(value: object) -> str:
    """A user, or what remains of one."""
    return str(value) if value else "removed account"


@register.filter
def selector(value: Mapping[str, Any] | None) -> str:
    """A LabelSelector as people write it: `pool=train, fabric in (ib, roce), !spot`."""
    value = value or {}
    out = [f"{k}={v}" for k, v in sorted((value.get("matchLabels") or {}).items())]
    for item in value.get("matchExpressions") or ():
        label, names = item.get("key"), ", ".join(item.get("values") or ())
        forms = {
            "In": f"{label} in ({names})",
            "NotIn": f"{label} not in ({names})",
            "Exists": label,
            "DoesNotExist": f"!{label}",
        }
        out.append(str(forms.get(item.get("operator", ""), json.dumps(item))))
    return ", ".join(out) or "every node"


@register.filter
def at(value: Mapping[Any, Any] | None, name: Any) -> Any:
    """`counts|at:name`: a value of a mapping under a variable name."""
    return (value or {}).get(name)


@register.filter
def pretty(value: object) -> str:
    """JSON for people to read."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True, default=str)


@register.filter
def control(field: BoundField, css: str = "") -> SafeString:
    """A form's field with the house's classes, marked and tied to its error and hint where `_field.html` shows them."""
    kind = field.widget_type
    base = {"select": "form-select", "checkbox": "form-check-input", "radioselect": "form-check-input"}.get(
        kind, "form-control"
    )
    attributes: dict[str, str | bool] = {"class": f"{base} {css}".strip()}
    described = [f"{field.id_for_label}-error"] * bool(field.errors) + [f"{field.id_for_label}-hint"] * bool(
        field.help_text
    )
    if field.errors:
        attributes["aria-invalid"] = "true"
    if described:
        attributes["aria-describedby"] = " ".join(described)
    return field.as_widget(attrs=attributes)
