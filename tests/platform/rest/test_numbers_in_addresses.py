"""A number in an address that fits no column is an address that does not exist, at whichever door."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLResolver, get_resolver

from tests.factories import TokenClient, UserFactory

pytestmark = [pytest.mark.django_db, pytest.mark.every_case]
HUGE = "9" * 30


def routes(patterns: list[Any], before: str = "") -> Iterator[str]:
    for pattern in patterns:
        here = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        elif "<int:" in here:
            yield here


ROUTES = sorted(set(routes(get_resolver().url_patterns)))


@pytest.mark.parametrize("route", ROUTES)
def test_a_number_beyond_every_column_is_not_found(route: str) -> None:
    boss = UserFactory(is_superuser=True)
    client: Client = TokenClient(boss) if route.startswith("api/") else Client()
    if not route.startswith("api/"):
        client.force_login(boss)
    path = re.sub(r"<[^>]+>", "1", re.sub(r"<int:[^>]+>", HUGE, route)).strip("^$")
    for method in (client.get, client.post):
        assert method(f"/{path}").status_code == 404
