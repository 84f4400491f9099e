"""Heads and addresses of sorted, filtered, paged lists: `{% load lists %}`, over common.listing.Listing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import urlencode

from django import template
from django.http import HttpRequest
from django.template import Context
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from common.listing import PAGING, Listing
from common.templatetags.setpoint import icon

register = template.Library()
HEADS = "heads that sort"
"""Where a table's heads tell the block `sortable` around them what they are called."""

SINCE = (("24h", "Last 24 hours"), ("7d", "Last 7 days"), ("30d", "Last 30 days"))


@register.filter
def of_count(plural: str, count: int) -> str:
    """`plans to review` of one thing: `plan to review`."""
    if count != 1:
        return plural
    noun, space, rest = plural.partition(" ")
    if noun == "people":
        noun = "person"
    elif noun.endswith("ies"):
        noun = f"{noun.removesuffix('ies')}y"
    else:
        noun = noun.removesuffix("s")
    return f"{noun}{space}{rest}"


@register.simple_tag(takes_context=True)
def address(context: Context, **changes: Any) -> str:
    """This page's address with some of its query changed, from its first page on; None takes a term away."""
    request: HttpRequest = context["request"]
    query = request.GET.copy()
    for name in PAGING:
        query.pop(name, None)
    for name, value in changes.items():
        query.pop(name, None)
        if value is not None and value != "":
            query.setlist(name, [str(value)])
    return f"{request.path}?{query.urlencode()}" if query else request.path


@register.simple_tag(takes_context=True)
def head(context: Context, listing: Listing[Any], name: str, label: str, css: str = "") -> SafeString:
    """The head of a column that the list can be sorted by; pressed once more, it turns round."""
    context.render_context[HEADS] = [*(context.render_context.get(HEADS) or ()), (name, label)]
    is_sorted = listing.order.name == name
    turned = not listing.order.is_descending if is_sorted else name in listing.orders.descending
    to = address(context, ordering=f"{'-' if turned else ''}{name}")
    direction = "descending" if listing.order.is_descending else "ascending"
    sort_attribute = format_html(' aria-sort="{}"', direction) if is_sorted else ""
    arrow = (icon("arrow-down", "i-s") if listing.order.is_descending else icon("arrow-up", "i-s")) if is_sorted else ""
    link = format_html('<a href="{}" id="sort-{}" data-back>{}{}</a>', to, name, label, arrow)
    return format_html('<th scope="col"{}{}>{}</th>', _class(css), sort_attribute, link)


@register.simple_block_tag(takes_context=True)
def sortable(context: Context, content: str, listing: Listing[Any] | None = None) -> SafeString:
    """Around a table with such heads: where a phone shows no heads, a choice of the same orders is shown above it."""
    heads = context.render_context.get(HEADS) or []
    context.render_context[HEADS] = []
    if not listing or not heads:
        return format_html("{}", content)
    request: HttpRequest = context["request"]
    others = [(n, v) for n, values in request.GET.lists() if n not in (*PAGING, "ordering") for v in values if v]
    order = listing.order
    choices = [
        (
            order.text if name == order.name else f"{'-' if name in listing.orders.descending else ''}{name}",
            " selected" if name == order.name else "",
            label,
        )
        for name, label in heads
    ]
    if order.name not in dict(heads):
        choices.insert(0, (order.text, " selected", "The usual order"))
    turned = order.name if order.is_descending else f"-{order.name}"
    return format_html(
        '<form class="sorter" method="get" aria-label="Sort">{}<label for="sort">Sort by</label>'
        '<select class="form-select" id="sort" name="ordering" data-submit>{}</select>'
        '<noscript><button class="btn">Sort</button></noscript>'
        '<a class="btn btn-icon" id="sort-turn" data-back href="{}" aria-label="{}; turn round">{}</a></form>{}',
        format_html_join("", '<input type="hidden" name="{}" value="{}">', others),
        format_html_join("", '<option value="{}"{}>{}</option>', choices),
        address(context, ordering=turned),
        "Descending" if order.is_descending else "Ascending",
        icon("arrow-down" if order.is_descending else "arrow-up"),
        content,
    )


@register.simple_tag(takes_context=True)
def mark(context: Context, **marks: str) -> str:
    """The address of another page of the same list."""
    request: HttpRequest = context["request"]
    query = [(n, v) for n, values in request.GET.lists() if n not in PAGING for v in values]
    return f"?{urlencode([*query, *marks.items()])}"


@register.filter
def asks(listing: Listing[Any], name: str) -> str:
    """The first value of a filter, or nothing."""
    return (listing.asked.get(name) or [""])[0]


@register.filter
def contains(values: Collection[str] | None, value: str) -> bool:
    return value in (values or ())


@register.simple_tag
def since_choices(listing: Listing[Any]) -> list[tuple[str, str]]:
    """The usual lengths of time, and any other that the address asks for."""
    chosen = asks(listing, "since")
    other = [(chosen, f"Since {chosen}")] if chosen and chosen not in dict(SINCE) else []
    return [*SINCE, *other]


def _class(css: str) -> SafeString | str:
    return format_html(' class="{}"', css) if css else ""
