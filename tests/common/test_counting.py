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
        found = counting.counts_of(rows)
    assert found == {name: query.count() for name, query in rows.items()} == {
        "all": 4, "a": 3, "none": 0, 7: 1, "nobody": 0,
    }  # fmt: skip
    assert len(seen) == 1
    monkeypatch.setattr(counting, "AT_ONCE", 2)
    assert counting.counts_of(rows) == found
    assert counting.counts_of({}) == {}
