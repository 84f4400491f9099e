"""The requests that Okta sends: whole people by PUT, deactivation by an object without a path, groups by PATCH."""

from __future__ import annotations

from typing import Any

from accounts.models import ScimUser, User
from gpus.models import Team
from tests.accounts.scim.conftest import USER, Directory, account, logged_in, patch, roles


def sent(**over: Any) -> dict[str, Any]:
    return {
        "schemas": [USER],
        "userName": "ada@example.com",
        "name": {"givenName": "Ada", "familyName": "Lovelace"},
        "emails": [{"primary": True, "value": "ada@example.com", "type": "work"}],
        "displayName": "Ada Lovelace",
        "locale": "en-US",
        "externalId": "00ujl29u0le5T6Aj10h7",
        "groups": [],
        "password": "1mz050nq",
        "active": True,
    } | over


def test_the_connection_test_and_the_whole_life_of_a_person(corp: Directory) -> None:
    first = corp.ok("GET", "Users?startIndex=1&count=2")
    assert (first["totalResults"], first["startIndex"], first["itemsPerPage"], first["Resources"]) == (0, 1, 0, [])
    made = corp.ok("POST", "Users", sent())
    assert not account(made).has_usable_password()
    assert "password" not in made
    path = f"Users/{made['id']}"
    assert corp.ok("GET", path) == made

    answer = corp.ok("PUT", path, sent(id=made["id"], name={"givenName": "Augusta", "familyName": "King"}))
    assert answer["name"]["formatted"] == "Augusta King"

    browser = logged_in(made, corp.provider)
    assert corp.patch(path, {"op": "replace", "value": {"active": False}})["active"] is False
    assert browser.get("/account/").status_code == 302
    assert corp.patch(path, {"op": "replace", "value": {"active": True}})["active"] is True
    assert corp.ok("PUT", path, sent(active=False))["active"] is False
    assert not account(made).is_active


def test_groups_are_pushed_renamed_and_deleted_with_their_roles_at_once(corp: Directory) -> None:
    ada, bob = corp.person("ada@example.com"), corp.person("bob@example.com")
    made = corp.group("ops", ada["id"])
    path = f"Groups/{made['id']}"
    corp.patch(
        path,
        {"op": "remove", "path": f'members[value eq "{ada["id"]}"]'},
        {"op": "add", "path": "members", "value": [{"value": bob["id"], "display": "bob@example.com"}]},
    )
    assert (roles(ada), roles(bob)) == (set(), {("operator", "env:staging")})
    corp.patch(path, {"op": "replace", "path": "members", "value": [{"value": ada["id"]}, {"value": bob["id"]}]})
    assert roles(ada) == {("operator", "env:staging")}

    corp.patch(path, {"op": "replace", "value": {"id": made["id"], "displayName": "approvers"}})
    assert roles(ada) == roles(bob) == {("approver", "*")}
    corp.patch(path, {"op": "replace", "value": {"displayName": "Approvers"}})
    assert roles(ada) == set(), "a group is mapped by its exact name"

    corp.patch(path, {"op": "replace", "value": {"displayName": "ops"}})
    browser = logged_in(ada, corp.provider)
    assert corp.send("DELETE", path).status_code == 204
    assert roles(ada) == roles(bob) == set()
    assert browser.get("/account/").status_code == 302, "whose last role went is shut out, as at log-in"
    corp.refused("GET", path, status=404)


def test_a_group_limits_its_people_to_a_team(corp: Directory) -> None:
    """A team that is not there gives nothing, to no person of the group, until it is there."""
    ada = corp.person("ada@example.com")
    made = corp.group("speech", ada["id"])
    assert roles(ada) == set()
    corp.patch(f"Groups/{made['id']}", {"op": "replace", "path": "members", "value": []})
    Team.objects.create(pk=3, name="Speech")
    assert roles(ada) == set(), "the team is there, and no role waited for it"
    browser = logged_in(ada, corp.provider)
    corp.patch(f"Groups/{made['id']}", {"op": "add", "path": "members", "value": [{"value": ada["id"]}]})
    assert roles(ada) == {("viewer", "team:3")}
    assert (browser.get("/nodes/").status_code, browser.get("/team/").status_code) == (403, 302)
    assert browser.get("/team/", follow=True).redirect_chain == [("/team/3/", 302)]
    corp.patch(f"Groups/{made['id']}", {"op": "replace", "path": "members", "value": []})
    assert roles(ada) == set()
    assert browser.get("/team/3/").status_code == 302, "whose last role went is shut out"


def test_a_group_whose_people_have_its_roles_already_costs_no_query_a_person(
    corp: Directory, django_assert_max_num_queries: Any
) -> None:
    people = [corp.person(f"p{number}@example.com")["id"] for number in range(30)]
    corp.group("ops", *people)
    made = corp.group("ops-too", *people)
    with django_assert_max_num_queries(45):
        corp.patch(f"Groups/{made['id']}", {"op": "replace", "value": {"displayName": "renamed"}})


def test_a_put_that_leaves_out_active_and_external_id_ends_and_loses_nobody(corp: Directory) -> None:
    made = corp.ok("POST", "Users", sent())
    answer = corp.ok("PUT", f"Users/{made['id']}", {"schemas": [USER], "userName": "ada@example.com"})
    assert (answer["active"], answer["externalId"]) == (True, "00ujl29u0le5T6Aj10h7")
    assert "name" not in answer


def test_a_deleted_person_is_gone_and_comes_back_to_the_same_account(corp: Directory) -> None:
    made = corp.ok("POST", "Users", sent())
    corp.group("ops", made["id"])
    browser = logged_in(made, corp.provider)
    assert corp.send("DELETE", f"Users/{made['id']}").status_code == 204
    assert browser.get("/account/").status_code == 302
    assert roles(made) == set()
    corp.refused("GET", f"Users/{made['id']}", status=404)
    corp.refused("PATCH", f"Users/{made['id']}", patch({"op": "replace", "value": {"active": True}}), status=404)
    assert corp.ok("GET", "Users")["totalResults"] == 0
    assert not User.objects.get(email="ada@example.com").is_active

    again = corp.ok("POST", "Users", sent())
    assert again["id"] == made["id"]
    assert account(again).is_active
    assert roles(again) == set(), "the groups come anew, too"


def test_another_person_with_the_name_of_a_deleted_one_gets_no_account_of_theirs(corp: Directory) -> None:
    made = corp.ok("POST", "Users", sent())
    corp.send("DELETE", f"Users/{made['id']}")
    corp.refused("POST", "Users", sent(externalId="00uOTHER"), status=409, kind="uniqueness")
    assert ScimUser.objects.get().deleted_at is not None
