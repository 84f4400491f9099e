"""Heads and addresses of sorted, filtered, paged lists: `{% load lists %}`, over common.listing.Listing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlencode

from django import template
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from common.listing import PAGING, Listing
from common.templatetags.setpoint import icon

register = template.Library()

SINCE = (("24h", "Last 24 hours"), ("7d", "Last 7 days"), ("30d", "Last 30 days"))


@register.simple_tag(takes_context=True)
def address(context: Mapping[str, Any], **changes: Any) -> str:
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
def head(context: Mapping[str, Any], listing: Listing[Any], name: str, label: str, css: str = "") -> SafeString:
    """The head of a column that the list can be sorted by; pressed once more, it turns round."""
    is_sorted = listing.order.name == name
    turned = not listing.order.is_descending if is_sorted else name in listing.orders.descending
    to = address(context, ordering=f"{'-' if turned else ''}{name}")
    direction = "descending" if listing.order.is_descending else "ascending"
    said = format_html(' aria-sort="{}"', direction) if is_sorted else ""
    arrow = (icon("arrow-down", "i-s") if listing.order.is_descending else icon("arrow-up", "i-s")) if is_sorted else ""
    return format_html('<th scope="col"{}{}><a href="{}">{}{}</a></th>', _class(css), said, to, label, arrow)


@register.simple_tag(takes_context=True)
def mark(context: Mapping[str, Any], **marks: str) -> str:
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
    """The usual lengths of time, and whatever else the address asks for."""
    asked = asks(listing, "since")
    other = [(asked, f"Since {asked}")] if asked and asked not in dict(SINCE) else []
    return [*SINCE, *other]


def _class(css: str) -> SafeString | str:
    return format_html(' class="{}"', css) if css else ""
