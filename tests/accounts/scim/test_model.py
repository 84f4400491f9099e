"""Any sequence of a directory's requests leaves what a model says: people, whether active, groups and roles."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from accounts.models import RoleBinding, ScimUser
from tests.accounts.scim.conftest import MAPPING, Directory, account, user
from tests.factories import UserFactory

NAMES = [f"p{number}@example.com" for number in range(4)]
GROUPS = ["ops", "approvers", "admins", "everyone"]


@dataclass
class Model:
    """People and groups by name; ids as the service gave them."""

    ids: dict[str, str] = field(default_factory=dict)
    active: dict[str, bool] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)

    def roles(self, name: str) -> set[tuple[str, str]]:
        of = {group for group, members in self.members.items() if name in members}
        return {(row.role, row.scope) for row in MAPPING if row.group in of}


def step(directory: Directory, model: Model, choose: random.Random) -> None:
    name, group = choose.choice(NAMES), choose.choice(GROUPS)
    verb = choose.choice(("make", "make", "active", "put", "drop", "fill", "fill", "add", "add", "take", "drop group"))
    if verb == "make":
        answer = directory.send("POST", "Users", user(name))
        assert answer.status_code == (409 if name in model.ids else 201)
        model.ids.setdefault(name, answer.json().get("id", ""))
        model.active.setdefault(name, True)
    elif verb in ("active", "put", "drop") and name in model.ids:
        _change(directory, model, verb, name, choose)
    elif verb == "fill" and group not in model.groups:
        made = directory.group(group)
        model.groups[group], model.members[group] = made["id"], set()
    elif verb in ("fill", "add", "take") and group in model.groups:
        _move(directory, model, verb, group, {each for each in model.ids if choose.random() < 0.5})
    elif verb == "drop group" and group in model.groups:
        assert directory.send("DELETE", f"Groups/{model.groups.pop(group)}").status_code == 204
        del model.members[group]


def _change(directory: Directory, model: Model, verb: str, name: str, choose: random.Random) -> None:
    path, value = f"Users/{model.ids[name]}", choose.random() < 0.5
    if verb == "active":
        written: Any = choose.choice((value, str(value)))
        directory.patch(path, choose.choice((
            {"op": "Replace", "path": "active", "value": written}, {"op": "replace", "value": {"active": written}},
        )))  # fmt: skip
        model.active[name] = value
    elif verb == "put":
        directory.ok("PUT", path, user(name, active=value))
        model.active[name] = value
    else:
        assert directory.send("DELETE", path).status_code == 204
        del model.ids[name], model.active[name]
        for members in model.members.values():
            members.discard(name)


def _move(directory: Directory, model: Model, verb: str, group: str, names: set[str]) -> None:
    path = f"Groups/{model.groups[group]}"
    rows = [{"value": model.ids[name]} for name in sorted(names)]
    op = {"fill": "replace", "add": "Add", "take": "Remove"}[verb]
    directory.patch(path, {"op": op, "path": "members", "value": rows})
    present = model.members[group]
    model.members[group] = names if verb == "fill" else present | names if verb == "add" else present - names


def compare(directory: Directory, model: Model) -> None:
    listed = {row["userName"]: row for row in directory.ok("GET", "Users")["Resources"]}
    assert {name: row["id"] for name, row in listed.items()} == model.ids
    assert {name: row["active"] for name, row in listed.items()} == model.active
    for name, row in listed.items():
        assert {each["display"] for each in row.get("groups", [])} == {
            group for group, members in model.members.items() if name in members
        }
        person = account(row)
        held = {(binding.role, binding.scope) for binding in RoleBinding.objects.filter(user=person)}
        assert (person.is_active, held) == (model.active[name], model.roles(name)), name
    groups = {row["displayName"]: row for row in directory.ok("GET", "Groups")["Resources"]}
    assert {name: {each["display"] for each in row["members"]} for name, row in groups.items()} == model.members
    gone = ScimUser.objects.exclude(deleted_at=None).select_related("user")
    assert not any(row.user.is_active or row.user.bindings.exists() for row in gone)


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_requests_ends_as_the_model_says(corp: Directory, seed: int) -> None:
    UserFactory(roles=["admin"])  # so that no request ends the last one
    choose, model = random.Random(seed), Model()
    for number in range(24):
        step(corp, model, choose)
        if number % 8 == 7:
            compare(corp, model)
    compare(corp, model)
