"""Components in the search: an answer to `common.hooks.search`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.urls import reverse

from accounts.permissions import ANYWHERE, Role, may
from common.search import EACH, Needle, SearchGroup, SearchResult
from components.catalog import catalog
from components.catalog.entry import Component


def find(user: Any, needle: Needle) -> Iterable[SearchGroup]:
    """Those whose name begins so first, then those in which every word occurs. In memory: no query."""
    if not may(user, Role.VIEWER, ANYWHERE):
        return
    text = needle.text.lower()
    every = [
        component for component in catalog.all() if all(word in _searched_text(component) for word in text.split())
    ]
    known = sorted(every, key=lambda component: not component.name.startswith(text))
    results = [
        SearchResult(
            component.name, component.title, reverse("components:component", args=[component.name]), component.summary
        )
        for component in known[:EACH]
    ]
    yield SearchGroup("component", "Components", "package", 55, results)


def _searched_text(component: Component) -> str:
    """Return the text that is searched, without presets.

    An intent such as training would rank before the plans that the user looks for.
    """
    return f"{component.name} {component.title} {component.summary}".lower()
