"""Two requests of one directory at once: both count, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from accounts.models import RoleBinding, ScimMember, ScimUser
from tests.accounts.scim.conftest import Directory, roles, user

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    together = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            together.wait(timeout=60)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


def test_two_changes_of_a_group_at_once_both_count(corp: Directory) -> None:
    people = [corp.person(f"p{number}@example.com") for number in range(4)]
    first, second = corp.group("ops", people[0]["id"]), corp.group("approvers")

    def add(group: dict[str, Any], number: int) -> Callable[[], Any]:
        change = {"op": "add", "path": "members", "value": [{"value": people[number]["id"]}]}
        return lambda: corp.patch(f"Groups/{group['id']}", change)

    take = {"op": "remove", "path": f'members[value eq "{people[0]["id"]}"]'}
    at_once(
        add(first, 1), add(first, 2), add(second, 2), add(second, 3),
        lambda: corp.patch(f"Groups/{first['id']}", take),
    )  # fmt: skip
    staging, everywhere = ("operator", "env:staging"), ("approver", "*")
    assert [roles(each) for each in people] == [set(), {staging}, {staging, everywhere}, {everywhere}]


def test_one_person_sent_twice_at_once_is_one_account(corp: Directory) -> None:
    answers = at_once(*[lambda: corp.send("POST", "Users", user("ada@example.com")).status_code] * 3)
    assert sorted(answers) == [201, 409, 409]
    assert ScimUser.objects.count() == 1


def test_a_deletion_and_a_new_membership_at_once_leave_no_role(corp: Directory) -> None:
    ada = corp.person()
    group = corp.group("approvers")
    change = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
              "Operations": [{"op": "add", "path": "members", "value": [{"value": ada["id"]}]}]}  # fmt: skip
    at_once(
        lambda: corp.send("DELETE", f"Users/{ada['id']}"),
        lambda: corp.send("PATCH", f"Groups/{group['id']}", change),
    )
    assert not ScimMember.objects.exists()
    assert not RoleBinding.objects.filter(user=ScimUser.objects.get().user).exists()
