"""Several counts in one query: each is what its own query would have counted."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from common import counting
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def test_each_count_is_its_own(monkeypatch):
    for number in range(3):
        UserFactory(email=f"a{number}@example.com")
    UserFactory(email="b@example.com")
    everybody = User.objects.order_by("email")
    rows = {
        "all": everybody,
        "a": everybody.filter(email__startswith="a"),
        "none": everybody.none(),
        7: everybody.filter(email__startswith="b"),
        "nobody": everybody.filter(email="x"),
    }
    with CaptureQueriesContext(connection) as seen:
        counts = counting.counts_of(rows)
    assert counts == {name: query.count() for name, query in rows.items()} == {
        "all": 4, "a": 3, "none": 0, 7: 1, "nobody": 0,
    }  # fmt: skip
    assert len(seen) == 1
    monkeypatch.setattr(counting, "AT_ONCE", 2)
    assert counting.counts_of(rows) == counts
    assert counting.counts_of({}) == {}


def test_keys_are_each_their_own(monkeypatch):
    for number in range(5):
        UserFactory(email=f"a{number}@example.com")
    rows = {
        "early": User.objects.filter(email__lt="a2@"),
        3: User.objects.filter(email__gt="a2@"),
        "nobody": User.objects.none(),
        "all": User.objects.order_by("-email"),
    }
    wanted = {name: set(query.values_list("pk", flat=True)) for name, query in rows.items()}
    with CaptureQueriesContext(connection) as seen:
        assert counting.keys_of(rows) == wanted
    assert len(seen) == 1
    monkeypatch.setattr(counting, "AT_ONCE", 1)
    assert counting.keys_of(rows) == wanted


def test_lists_are_each_their_own_in_their_order():
    for number in range(6):
        UserFactory(email=f"a{number}@example.com", first_name=f"{number % 2}")
    everybody = User.objects.all()
    parts = {
        "last": everybody.order_by("-email")[:2],
        "odd": everybody.filter(first_name="1").order_by("first_name", "-email")[:2],
        "nobody": everybody.none(),
        "whole": everybody.order_by("email"),
    }
    with CaptureQueriesContext(connection) as seen:
        lists = counting.lists_of(everybody.filter(email__lt="a5"), parts)
    assert len(seen) == 1
    assert {name: [user.email[:2] for user in users] for name, users in lists.items()} == {
        "last": ["a4"], "odd": ["a3"], "nobody": [], "whole": ["a0", "a1", "a2", "a3", "a4"],
    }, "only what may be seen"  # fmt: skip
