"""Filters that people keep under a name: a list page and the query of its URL, one's own or shared with everyone.

A filter is only an address. Opening it shows what its reader may see; sharing it gives no rights.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.urls import reverse

from accounts.models import SavedFilter, User
from accounts.permissions import GLOBAL, Role, may
from audit.services import record
from common.errors import Invalid, Missing, NotAllowed

PAGES = {
    "clusters": "clusters:clusters",
    "nodes": "clusters:nodes",
    "plans": "jobs:plans",
    "rollouts": "jobs:rollouts",
    "audit": "audit:records",
}
"""Lists whose filters live in the URL. Addresses by name, for this room knows none of them."""
MOST = 100
"""Of one person: it is a shelf, not a store."""
MOST_TERMS = 20
LONGEST = 1000

_TERM = re.compile(r"[a-z][a-z0-9_]{0,39}")
_DROPPED = ("page", "after", "before", "start", "limit", "offset")


@dataclass(frozen=True, slots=True)
class KeptFilter:
    filter: SavedFilter
    url: str
    may_drop: bool


@dataclass(frozen=True, slots=True)
class Shelf:
    """Saved filters of one page: the reader's own first, then those that others share."""

    page: str
    own: Sequence[KeptFilter]
    shared: Sequence[KeptFilter]


def of_page(page: str, user: User) -> Shelf:
    """One query."""
    rows = SavedFilter.objects.filter(Q(owner=user) | Q(is_shared=True, owner__is_active=True), page=page)
    visible = [
        KeptFilter(row, url_of(row), row.owner_id == user.pk or may(user, Role.ADMIN, GLOBAL))
        for row in rows.select_related("owner")[: 2 * MOST]
    ]
    own = [kept for kept in visible if kept.filter.owner_id == user.pk]
    return Shelf(page, own, [kept for kept in visible if kept.filter.owner_id != user.pk])


def url_of(row: SavedFilter) -> str:
    return f"{reverse(PAGES[row.page])}?{row.query}"


@transaction.atomic
def keep(*, page: str, name: str, query: str, by: User, is_shared: bool = False) -> SavedFilter:
    """Save a filter under a name; the same name again replaces it. Raises Invalid."""
    fields: dict[str, list[str]] = {}
    if page not in PAGES:
        fields["page"] = [f"Filters can be saved for {', '.join(PAGES)}."]
    name = " ".join(name.split())
    if not 1 <= len(name) <= 60:
        fields["name"] = ["Give it a name of 1 to 60 characters."]
    try:
        query = canonical(query)
    except Invalid as refusal:
        fields |= refusal.fields
    others = SavedFilter.objects.filter(owner=by).exclude(page=page, name=name)
    if not fields and others.count() >= MOST:
        fields["name"] = [f"You have {MOST} filters already; delete one first."]
    if fields:
        raise Invalid("The filter was not saved.", fields=fields)
    try:
        with transaction.atomic():
            row, is_new = SavedFilter.objects.update_or_create(
                owner=by, page=page, name=name, defaults={"query": query, "is_shared": is_shared}
            )
    except IntegrityError as error:  # the same name from another tab, this moment
        raise Invalid(
            "The filter was not saved.", fields={"name": ["You have just saved one of this name."]}
        ) from error
    if row.is_shared:  # what only its owner sees concerns no other person
        verb = "create" if is_new else "update"
        after = {"page": page, "query": query}
        record(by=by, action=f"filter.{verb}", target=f"filter:{row.pk}", target_name=name, after=after)
    return row


@transaction.atomic
def drop(*, pk: int, by: User) -> SavedFilter:
    """One's own; shared ones also by administrators. Raises Missing, NotAllowed."""
    row = SavedFilter.objects.filter(Q(owner=by) | Q(is_shared=True), pk=pk).first()
    if row is None:
        raise Missing("There is no such filter.")
    if row.owner_id != by.pk and not may(by, Role.ADMIN, GLOBAL):
        raise NotAllowed("Only its owner or an administrator can delete a shared filter.")
    if row.is_shared:
        before = {"page": row.page, "query": row.query}
        record(by=by, action="filter.delete", target=f"filter:{row.pk}", target_name=row.name, before=before)
    SavedFilter.objects.filter(pk=row.pk).delete()
    return row


def canonical(query: str) -> str:
    """The query as it is kept: sorted, without the page's number and without empty terms. Raises Invalid."""
    query = query.strip().lstrip("?")
    try:
        if len(query) > LONGEST:
            raise ValueError(f"At most {LONGEST} characters.")
        terms = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=MOST_TERMS)
        for name, value in terms:
            if not _TERM.fullmatch(name):
                raise ValueError(f"{name[:40]!r} is not the name of a filter.")
            if any(ord(character) < 32 for character in value):
                raise ValueError(f"{name} contains a control character.")
    except ValueError as error:
        raise Invalid(f"This is not a query: {error}", fields={"query": [f"Not a query: {error}"]}) from error
    kept = sorted((name, value) for name, value in terms if value and name not in _DROPPED)
    if not kept:
        raise Invalid("Nothing is filtered.", fields={"query": ["Filter the list first; there is nothing to save."]})
    text = urlencode(kept)
    if len(text) > LONGEST:
        raise Invalid("The filter is too long.", fields={"query": [f"At most {LONGEST} characters."]})
    return text
