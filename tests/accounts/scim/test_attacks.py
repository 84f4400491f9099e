from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from accounts.access import tokens
from accounts.models import Identity, RoleBinding, ScimClient, ScimGroup, ScimMember, ScimUser, User
from accounts.people import pending, services
from accounts.scim import clients
from common.clock import now
from common.errors import NotAllowed, WrongState
from tests.accounts.scim.conftest import GROUP, USER, Directory, account, patch, roles, user
from tests.factories import UserFactory


def test_neither_token_opens_the_other_s_door(corp: Directory) -> None:
    admin = UserFactory(roles=["admin"])
    _, text = tokens.issue(
        user=admin, name="all", scopes=["read", "plan", "apply", "approve", "admin"], days=3, by=admin
    )
    corp.refused("GET", "Users", status=401, headers={"Authorization": f"Bearer {text}"})
    for path in ("/api/v1/me", "/api/v1/users"):
        assert Client().get(path, headers={"Authorization": f"Bearer {corp.text}"}).status_code == 401
    browser = Client()
    browser.force_login(admin)
    assert browser.get("/scim/v2/Users").status_code == 401, "a session is none of a directory"


def test_a_token_that_ended_or_was_changed_in_the_table_is_none(corp: Directory) -> None:
    wrong = corp.text[:-1] + ("A" if corp.text[-1] != "A" else "B")
    for text in ("", "scim_", wrong, f"{corp.text} ", f"scim_aaaaaaaaaaaa.{corp.text.split('.')[1]}"):
        corp.refused("GET", "Users", status=401, headers={"Authorization": f"Basic {text}"})
    corp.refused("GET", "Users", status=401, headers={"Authorization": f"Bearer {wrong}"})
    rows = ScimClient.objects.filter(pk=corp.client.pk)
    for change in (
        {"revoked_at": now()},
        {"expires_at": now() - timedelta(1)},
        {"issuer": "https://other.example.com"},
    ):
        before = rows.values(*change).get()
        rows.update(**change)
        corp.refused("GET", "Users", status=401)
        rows.update(**before)
    rows.update(networks="10.0.0.0/8")
    corp.refused("GET", "Users", status=401)


def test_a_token_counts_from_its_address_ranges_only(corp: Directory) -> None:
    _, corp.text = clients.issue(
        provider=corp.provider, name="office", days=3, by="command line", networks=["192.0.2.0/24"]
    )
    assert corp.send("GET", "Users", REMOTE_ADDR="192.0.2.9").status_code == 200
    assert "198.51.100.1" in corp.refused("GET", "Users", status=403, REMOTE_ADDR="198.51.100.1")


def test_one_administrator_alone_makes_no_token_that_works(corp: Directory) -> None:
    admin, second = UserFactory(roles=["admin"]), UserFactory(roles=["admin"])
    client, corp.text = clients.issue(provider=corp.provider, name="new", days=3, by=admin)
    corp.refused("GET", "Users", status=401)
    (change,) = pending.waiting(admin)
    with pytest.raises(NotAllowed):
        pending.consent(pk=change.pk, by=admin)
    pending.consent(pk=change.pk, by=second)
    assert corp.send("GET", "Users").status_code == 200
    clients.revoke(client=client, by=admin)
    corp.refused("GET", "Users", status=401)
    with pytest.raises(NotAllowed):
        clients.issue(provider=corp.provider, name="new", days=3, by=UserFactory(roles=["operator", "approver"]))


def test_another_provider_s_people_and_groups_do_not_exist(corp: Directory, other: Directory) -> None:
    ada = corp.person()
    made = corp.group("ops", ada["id"])
    for path in (f"Users/{ada['id']}", f"Groups/{made['id']}"):
        other.refused("GET", path, status=404)
        other.refused("DELETE", path, status=404)
        other.refused("PATCH", path, patch({"op": "replace", "value": {"displayName": "x"}}), status=404)
    assert other.ok("GET", "Users")["totalResults"] == other.ok("GET", "Groups")["totalResults"] == 0
    sent = {"schemas": [GROUP], "displayName": "approvers", "members": [{"value": ada["id"]}]}
    other.refused("POST", "Groups", sent, status=400, kind="invalidValue")
    assert roles(ada) == {("operator", "env:staging")}
    assert not ScimGroup.objects.filter(issuer=other.provider.issuer).exists()


@pytest.mark.parametrize("name", ["ADA@example.com", "ada@EXAMPLE.com", "ａda@example.com", " ada@example.com "])
def test_no_account_is_taken_over_by_its_address(corp: Directory, other: Directory, name: str) -> None:
    local = UserFactory(email="ada@example.com", roles=["admin"])
    emails = [{"value": "ada@example.com", "primary": True}]
    corp.refused("POST", "Users", user(name, emails=emails), status=409, kind="uniqueness")
    eve = corp.person("eve@example.com")
    rename = {"op": "replace", "path": "emails", "value": emails}
    corp.refused("PATCH", f"Users/{eve['id']}", patch(rename), status=409, kind="uniqueness")
    other.person("bob@example.com")
    corp.refused("POST", "Users", user("bob@example.com"), status=409, kind="uniqueness")
    assert not Identity.objects.exists()
    local.refresh_from_db()
    assert local.is_active
    assert local.has_usable_password()
    assert not ScimUser.objects.filter(user=local).exists()


@pytest.mark.parametrize("name", ["ADA@EXAMPLE.COM", "ａｄａ@example.com", "Ada@Example.com"])
def test_a_user_name_is_one_in_every_case(corp: Directory, name: str) -> None:
    ada = corp.person("ada@example.com")
    twin = user(name, externalId="another", emails=[{"value": "twin@example.com"}])
    corp.refused("POST", "Users", twin, status=409, kind="uniqueness")
    assert corp.matches("Users", UserName=name) == [ada["id"]]


@pytest.mark.parametrize(
    "text",
    [
        'userName eq "a" or userName eq "b"', 'userName pr', 'userName co "a"', "userName eq 'a'", 'userName eq "a',
        'userName eq "a" and', 'userName eq "a" )', 'password eq "a"', 'user__password eq "a"', 'userName eq "\\u0000"',
        'userName eq "\\ud800"', 'not (userName eq "a")', 'userName eq "a";DROP TABLE accounts_user', "x" * 3000,
        " and ".join(['id eq "a"'] * 5), '(' * 1500, 'userName eq true',
    ],
)  # fmt: skip
def test_a_filter_is_what_is_supported_or_refused(corp: Directory, text: str) -> None:
    corp.person()
    corp.refused("GET", f"Users?filter={quote(text)}", status=400, kind="invalidFilter")


@pytest.mark.parametrize("value", ["%", "_", '\\" or 1=1 --', "' OR ''='", "*", "\\\\", "ada"])
def test_a_filter_s_value_is_a_value(corp: Directory, value: str) -> None:
    corp.person()
    for name in ("userName", "externalId", "displayName", "id", "emails.value"):
        assert corp.matches("Users", **{name: value}) == []


BAD_BODIES = [
    b" ", b"[]", b"null", b"{", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'{"schemas": NaN}', b'{"schemas": ["x"], "schemas": []}', json.dumps({"schemas": [USER], "n": "\ud800"}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_a_body_that_is_no_resource_is_refused(corp: Directory, body: bytes) -> None:
    corp.refused("POST", "Users", body, status=400, kind="invalidSyntax")
    corp.refused("POST", "Groups", body, status=400, kind="invalidSyntax")


@pytest.mark.parametrize(
    "over",
    [
        {"userName": ""}, {"userName": 7}, {"userName": "a" * 300}, {"userName": "x\x00y@example.com"},
        {"userName": "\ufdfa" * 200}, {"userName": "no-address"}, {"active": "maybe"}, {"active": 1},
        {"emails": "x"}, {"emails": [7]}, {"emails": [{"value": "ſtaff@example.com"}]}, {"name": []},
        {"externalId": ["x"]}, {"roles": [{"value": "admin"}]}, {"entitlements": ["all"]},
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_kept_is_refused(corp: Directory, over: dict[str, Any]) -> None:
    corp.refused("POST", "Users", user("ada@example.com", **over), status=400, kind="invalidValue")
    assert not User.objects.exists()


def test_an_attribute_that_power_hangs_on_is_not_written_past_the_directory(corp: Directory) -> None:
    for name in ("is_superuser", "isStaff", "password_hash", "user"):
        corp.refused("POST", "Users", user("ada@example.com", **{name: True}), status=400, kind="invalidSyntax")


def test_a_huge_body_is_refused_before_it_is_read(corp: Directory) -> None:
    corp.refused("POST", "Users", b" " * (1024 * 1024 + 1), status=413)
    many = [{"value": "00000000-0000-0000-0000-000000000001"}] * 1001
    sent = patch(*({"op": "add", "path": "members", "value": [each]} for each in many))
    made = corp.group("ops")
    corp.refused("PATCH", f"Groups/{made['id']}", sent, status=400, kind="invalidSyntax")


def test_an_unmapped_group_gives_nothing_and_rows_made_in_the_table_give_nothing(corp: Directory) -> None:
    ada = corp.person()
    corp.group("everyone", ada["id"])
    assert roles(ada) == set()
    approvers = corp.group("approvers")
    ScimMember(group_id=approvers["id"], member_id=ada["id"]).save()
    ScimMember.objects.update(mac="0" * 64)
    bob = corp.person("bob@example.com")
    corp.patch(f"Groups/{approvers['id']}", {"op": "add", "path": "members", "value": [{"value": bob["id"]}]})
    ScimGroup.objects.filter(display_name="everyone").update(display_name="admins")
    corp.ok("PUT", f"Users/{ada['id']}", user("ada@example.com"))
    assert (roles(ada), roles(bob)) == (set(), {("approver", "*")})


def test_the_last_administrator_is_not_lost_to_a_directory(corp: Directory) -> None:
    ada = corp.person()
    made = corp.group("admins", ada["id"])
    path = f"Users/{ada['id']}"
    corp.refused("PATCH", path, patch({"op": "replace", "value": {"active": False}}), status=409, kind="mutability")
    corp.refused("DELETE", path, status=409, kind="mutability")
    corp.refused("DELETE", f"Groups/{made['id']}", status=409, kind="mutability")
    empty = patch({"op": "remove", "path": "members"})
    corp.refused("PATCH", f"Groups/{made['id']}", empty, status=409, kind="mutability")
    assert roles(ada) == {("admin", "*")}
    assert account(ada).is_active

    UserFactory(roles=["admin"])
    assert corp.send("DELETE", path).status_code == 204


def test_what_a_person_deactivated_here_the_directory_does_not_undo_and_the_other_way_round(corp: Directory) -> None:
    admin, ada = UserFactory(roles=["admin"]), corp.person()
    path = f"Users/{ada['id']}"
    services.change_user(user=account(ada), by=admin, is_active=False)
    assert corp.ok("PUT", path, user("ada@example.com"))["active"] is False
    corp.patch(path, {"op": "replace", "value": {"active": False}})
    assert corp.patch(path, {"op": "replace", "value": {"active": True}})["active"] is False
    services.change_user(user=account(ada), by=admin, is_active=True)
    assert corp.patch(path, {"op": "replace", "value": {"active": False}})["active"] is False
    with pytest.raises(WrongState):
        services.change_user(user=account(ada), by=admin, is_active=True)


def test_an_administrator_makes_no_local_account_of_a_directory_s(corp: Directory) -> None:
    admin, ada = UserFactory(roles=["admin"]), corp.person()
    with pytest.raises(WrongState):
        services.reset_password(user=account(ada), by=admin)
    with pytest.raises(WrongState):
        services.bind(user=account(ada), role="viewer", scope="*", by=admin)
    assert not RoleBinding.objects.filter(user=account(ada)).exists()
