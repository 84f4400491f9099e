"""Following the sealed record: in the order of its seals, nothing twice, nothing left out."""

from __future__ import annotations

import random

import pytest

from audit import tasks
from audit.models import Record
from audit.services import record
from tests.audit.chains import note, sealed, tamper
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db


def follow(client, **query):
    return client.get("/api/v1/audit/follow", query)


def walk(client, after="", **query):
    """All that follows a cursor, and the cursor behind it."""
    rows = []
    while True:
        answer = follow(client, after=after, **query).json()
        rows += answer["results"]
        after = answer["cursor"]
        if not answer["has_more"]:
            return rows, after


@pytest.fixture
def auditor():
    return TokenClient(UserFactory(roles=["auditor"], is_service=True), ["read"])


def test_a_follower_gets_each_sealed_record_once_in_order_whenever_it_asks(auditor) -> None:
    chance, rows, after = random.Random(7), [], ""
    for _ in range(8):
        note(chance.randrange(4))  # waits until it is sealed
        if chance.random() < 0.6:
            tasks.seal()
        more, after = walk(auditor, after, limit=chance.randrange(1, 4))
        rows += more
    tasks.seal()
    rows += walk(auditor, after)[0]
    assert [row["seq"] for row in rows] == list(range(1, Record.objects.count() + 1))
    assert {row["id"] for row in rows} == {str(pk) for pk in Record.objects.values_list("pk", flat=True)}


def test_a_reader_of_a_part_gets_that_part_and_a_cursor_behind_what_is_not_theirs() -> None:
    person = UserFactory(roles=["viewer@env:development"])
    for k in range(6):
        record(by=person if k % 3 == 0 else "ann", action="a.b", target=f"x:{k}")
    tasks.seal()
    own = TokenClient(person)
    rows, after = walk(own, limit=1)
    assert {row["actor"] for row in rows} == {person.email}
    assert [row["target"] for row in rows if row["action"] == "a.b"] == ["x:0", "x:3"]
    assert after.startswith(f"{Record.objects.sealed().count()}:")
    assert follow(own, after=after).json() == {"results": [], "cursor": after, "has_more": False}


def test_a_cursor_of_a_database_that_was_restored_is_refused_and_not_misread(auditor) -> None:
    sealed(3)
    after = walk(auditor)[1]
    tamper("UPDATE audit_seal SET seal = %s WHERE seq = %s", "f" * 64, int(after.partition(":")[0]))
    answer = follow(auditor, after=after)
    assert (answer.status_code, answer.json()["code"]) == (409, "audit-restored")
    assert follow(auditor, after=f"99:{'a' * 16}").status_code == 409, "it is ahead of this chain"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"after": "5"}, "after"),
        ({"after": "9" * 30 + ":" + "a" * 16}, "after"),
        ({"after": "-1:" + "a" * 16}, "after"),
        ({"after": "5:" + "A" * 16}, "after"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "²"}, "limit"),
        ({"actor": "ann"}, "actor"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_field(auditor, query, field) -> None:
    answer = follow(auditor, **query)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
