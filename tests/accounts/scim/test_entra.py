"""The requests that Entra ID sends, in its order and its dialect: capital operations, "False" as text, removals that
name members in the value."""

from __future__ import annotations

from typing import Any

from django.test import Client

from accounts.access import tokens
from accounts.models import ApiToken, LiveSession
from audit.models import Record
from tests.accounts.scim.conftest import GROUP, USER, Directory, account, logged_in, patch, roles

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


def provision(corp: Directory) -> dict[str, Any]:
    assert corp.ok("GET", 'Users?filter=userName+eq+"ada%40example.com"')["totalResults"] == 0
    sent = {
        "schemas": [USER, ENTERPRISE],
        "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
        "userName": "ada@example.com",
        "active": True,
        "displayName": "Ada Lovelace",
        "emails": [{"primary": True, "type": "work", "value": "Ada.Lovelace@example.com"}],
        "meta": {"resourceType": "User"},
        "name": {"formatted": "Ada Lovelace", "familyName": "Lovelace", "givenName": "Ada"},
        "roles": [],
        "title": "Engineer",
        "phoneNumbers": [{"type": "work", "value": "1"}],
        ENTERPRISE: {"department": "GPU"},
    }
    made = corp.ok("POST", "Users", sent)
    assert made["userName"] == "ada@example.com"
    assert made["emails"] == [{"value": "ada.lovelace@example.com", "type": "work", "primary": True}]
    assert made["name"] == {"givenName": "Ada", "familyName": "Lovelace", "formatted": "Ada Lovelace"}
    assert "title" not in made
    return made


def test_a_disabled_person_s_session_and_tokens_end_with_the_request(corp: Directory) -> None:
    made = provision(corp)
    corp.group("ops", made["id"])
    browser = logged_in(made, corp.provider)
    _, text = tokens.issue(user=account(made), name="ci", scopes=["read"], days=3, by=account(made))
    bearer = {"Authorization": f"Bearer {text}"}
    assert Client().get("/api/v1/me", headers=bearer).status_code == 200

    answer = corp.patch(f"Users/{made['id']}", {"op": "Replace", "path": "active", "value": "False"})

    assert answer["active"] is False
    assert browser.get("/account/").status_code == 302
    assert Client().get("/api/v1/me", headers=bearer).status_code == 401
    assert not LiveSession.objects.filter(user=account(made)).exists()
    assert not ApiToken.objects.live().filter(user=account(made)).exists()
    assert corp.ok("GET", 'Users?filter=userName eq "ada@example.com"')["Resources"][0]["active"] is False
    row = Record.objects.filter(action="user.change").latest("pk")
    assert row.actor == f"SCIM (corp, scim_{corp.client.pk})"
    assert (row.before["is_active"], row.after["is_active"]) == (True, False)


def test_the_same_person_assigned_again_is_active_again_with_the_groups_roles(corp: Directory) -> None:
    made = provision(corp)
    corp.group("ops", made["id"])
    corp.patch(f"Users/{made['id']}", {"op": "Replace", "path": "active", "value": "False"})
    answer = corp.patch(f"Users/{made['id']}", {"op": "Replace", "path": "active", "value": "True"})
    assert answer["active"] is True
    assert account(made).is_active
    assert roles(made) == {("operator", "env:staging")}


def test_several_attributes_change_by_paths_and_by_an_object_of_paths(corp: Directory) -> None:
    made = provision(corp)
    corp.patch(
        f"Users/{made['id']}",
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "countess@example.com"},
        {"op": "Replace", "path": "name.familyName", "value": "King"},
        {"op": "Add", "path": f"{ENTERPRISE}:department", "value": "Analysis"},
        {"op": "Replace", "path": f"{USER}:displayName", "value": "Countess"},
    )
    answer = corp.patch(
        f"Users/{made['id']}",
        {"op": "replace", "value": {"name.givenName": "Augusta", 'emails[type eq "home"].value': "x@example.com"}},
    )
    assert answer["emails"][0]["value"] == account(made).email == account(made).username == "countess@example.com"
    assert answer["name"]["formatted"] == "Augusta King"
    assert answer["displayName"] == "Countess"


def test_groups_are_matched_without_members_and_filled_in_both_dialects(corp: Directory) -> None:
    ada, bob = corp.person("ada@example.com"), corp.person("bob@example.com")
    assert corp.ok("GET", 'Groups?excludedAttributes=members&filter=displayName eq "ops"')["totalResults"] == 0
    made = corp.ok("POST", "Groups", {"schemas": [GROUP], "externalId": "8aa1", "displayName": "ops", "members": []})
    path = f"Groups/{made['id']}"
    corp.patch(path, {"op": "Add", "path": "members", "value": [{"$ref": None, "value": ada["id"]}]})
    corp.patch(path, {"op": "Add", "path": "members", "value": [{"value": bob["id"]}]})
    assert roles(ada) == roles(bob) == {("operator", "env:staging")}
    matches = corp.ok("GET", f'Groups?filter=id eq "{made["id"]}" and members.value eq "{ada["id"]}"')
    assert matches["totalResults"] == 1
    assert "members" not in corp.ok("GET", f"{path}?excludedAttributes=members")

    corp.patch(path, {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": ada["id"]}]})
    assert (roles(ada), roles(bob)) == (set(), {("operator", "env:staging")})
    corp.patch(path, {"op": "remove", "path": f'members[value eq "{bob["id"]}"]'})
    assert roles(bob) == set()


def test_a_removal_without_a_value_empties_the_group(corp: Directory) -> None:
    ada, bob = corp.person("ada@example.com"), corp.person("bob@example.com")
    made = corp.group("ops", ada["id"], bob["id"])
    corp.patch(f"Groups/{made['id']}", {"op": "Remove", "path": "members"})
    assert roles(ada) == roles(bob) == set()


def test_what_cannot_be_read_changes_nothing_and_names_its_attribute(corp: Directory) -> None:
    made = provision(corp)
    rename = {"op": "Replace", "path": "displayName", "value": "Changed"}
    wrong = [
        ({"op": "Replace", "path": "active", "value": "No"}, "invalidValue", "active"),
        ({"op": "Replace", "path": "userName", "value": None}, "invalidValue", "userName"),
        ({"op": "Remove", "path": "active"}, "invalidValue", "active"),
        ({"op": "Replace", "path": "id", "value": "1"}, "mutability", "id"),
        ({"op": "Replace", "path": "shoeSize", "value": "1"}, "invalidPath", "shoesize"),
        ({"op": "Add", "path": "roles", "value": [{"value": "admin"}]}, "invalidValue", "roles"),
        ({"op": "Move", "path": "active", "value": True}, "invalidSyntax", "Operations[0].op"),
        ({"op": "Remove"}, "noTarget", "Operations[0].path"),
    ]
    for operation, kind, name in wrong:
        assert name in corp.refused("PATCH", f"Users/{made['id']}", patch(operation, rename), status=400, kind=kind)
        assert corp.ok("GET", f"Users/{made['id']}")["displayName"] == "Ada Lovelace"
