"""Profiles, their revisions and the catalog's settings in the search: an answer to `common.hooks.search`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from accounts.permissions import ANYWHERE, Role, may
from common.search import EACH, Needle, SearchGroup, SearchResult
from profiles.catalog import known_settings
from profiles.models import Profile, Revision

SETTING_PAGE = "compliance:settings"
"""The page of a setting's value on every node; an address by name, for this room knows nothing of it."""


def find(user: Any, needle: Needle) -> Iterable[SearchGroup]:
    if may(user, Role.VIEWER, ANYWHERE):
        yield SearchGroup("profile", "Profiles", "adjustments-horizontal", 30, list(_profiles(needle))[:EACH])
        yield _settings(needle)


def _profiles(needle: Needle) -> Iterator[SearchResult]:
    """Yield profiles by any part of the name, for there are hundreds at most; and revisions by digest."""
    for profile in Profile.objects.filter(name__icontains=needle.text).order_by("name")[:EACH]:
        yield SearchResult(profile.name, profile.name, reverse("profiles:profile", args=[profile.name]))
    if needle.digest:
        rows = Revision.objects.filter(needle.begins("digest", needle.digest)).select_related("profile").defer("source")
        for row in rows.order_by("digest", "-pk")[:EACH]:
            href = reverse("profiles:revision", args=[row.profile.name, row.number])
            yield SearchResult(str(row.pk), str(row), href, row.digest[:19])


def _settings(needle: Needle) -> SearchGroup:
    """Those whose key begins so first, then those in which every word occurs. In memory: no query."""
    text = needle.text.lower()
    known = sorted(known_settings.search(text), key=lambda info: (not info.key.lower().startswith(text), info.key))
    page = reverse(SETTING_PAGE)
    results = [
        SearchResult(info.key, info.key, f"{page}?{urlencode({'key': info.key})}", info.title) for info in known[:EACH]
    ]
    return SearchGroup("setting", "Settings", "settings", 60, results)
