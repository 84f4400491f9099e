"""Tags and filters of every page: icons, statuses, counts, ages, text. Available in every template without a load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

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
    role = format_html('role="img" aria-label="{}"', label) if label else SafeString('aria-hidden="true"')
    return format_html(
        '<svg class="i{}" {}><use href="{}#tabler-{}"/></svg>',
        f" {css}" if css else "",
        role,
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
def status_icon(axis: str, value: object, css: str = "", *, is_said: bool = False) -> SafeString:
    """The icon alone; `is_said` where no word beside it has the same meaning."""
    seen = look.appearance(axis, value)
    return icon(seen.icon, css, seen.word.lower() if is_said else "")


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


@register.filter
def word(value: object, axis: str) -> str:
    """The word of a value, for a sentence or a button."""
    return look.appearance(axis, value).word


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


# ── Counts of an axis ─────────────────────────────────────────────────────────────────────────────────────────────────
@register.filter
def linked_to(counts: Counts, axis: str) -> str:
    """The worst value that occurs, for a link to the list of it; empty when only the best does."""
    value = worst(counts, axis)
    return "" if value in ("compliant", "healthy", "unassigned") else value


@register.filter
def worst(counts: Counts, axis: str) -> str:
    """The worst value of an axis that occurs in `counts`; empty when none does."""
    by_value = dict(counts or {})
    return next((name for name in look.AXES[axis] if by_value.get(name)), "")


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


@register.simple_tag
def query(**params: object) -> str:
    """The query of a link: `{% query cluster="atlas" health="" %}` is `?cluster=atlas`. What is empty is not asked."""
    terms = urlencode({name: value for name, value in params.items() if value})
    return f"?{terms}" if terms else ""


@register.filter
def sign(operator: str) -> str:
    """≥ for >=."""
    return look.sign(operator)


@register.filter
def sentence(counts: Counts, axis: str) -> str:
    """`7 drifted, 2 unknown`: all but the best value."""
    best = list(look.AXES[axis])[-1] if axis != "compliance" else "compliant"
    phrases = [f"{count:,} {word.lower()}" for name, word, count in parts(counts, axis) if name != best]
    return ", ".join(phrases)


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
