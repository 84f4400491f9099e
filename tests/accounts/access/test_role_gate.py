"""Being logged in is not enough to read what is stored: an account without a role reads its own account alone."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import User
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db

STORED = (
    "gpus/teams/", "gpus/prices/", "gpus/checks/", "approvals/rules/", "approvals/policy/", "approvals/change-records/",
    "windows/", "windows/export.ics", "freezes/", "alerts/rules/", "audit/", "search/?q=a", "profiles/", "components/",
)  # fmt: skip
LISTS = (
    "gpus/teams", "gpus/prices", "gpus/team-rules", "gpus/checks", "approval-rules", "policy-versions",
    "calendar-rules", "calendar-rules/export", "freezes", "change-record-rules", "alert-rules", "audit", "audit/follow",
    "saved-filters", "profiles", "settings", "components", "pending-changes",
)  # fmt: skip
OWN = ("account/", "account/second-factor/")
OWN_LISTS = ("me", "tokens", "sessions", "role-bindings")


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_an_account_without_a_role_opens_no_page_of_what_is_stored() -> None:
    nothing, viewer = browser_of(UserFactory()), browser_of(UserFactory(roles=["viewer"]))
    assert {path: viewer.get(f"/{path}").status_code for path in STORED} == dict.fromkeys(STORED, 200)
    assert {path: nothing.get(f"/{path}").status_code for path in STORED} == dict.fromkeys(STORED, 403)
    assert {path: nothing.get(f"/{path}").status_code for path in OWN} == dict.fromkeys(OWN, 200)


def test_an_account_without_a_role_reads_no_list_of_what_is_stored() -> None:
    for narrow in (TokenClient(UserFactory()), browser_of(UserFactory())):
        assert {path: narrow.get(f"/api/v1/{path}").status_code for path in LISTS} == dict.fromkeys(LISTS, 403)
        assert {path: narrow.get(f"/api/v1/{path}").status_code for path in OWN_LISTS} == dict.fromkeys(OWN_LISTS, 200)
    refused = TokenClient(UserFactory()).get("/api/v1/gpus/teams").json()
    assert "no role" in refused["detail"]
    viewer = TokenClient(UserFactory(roles=["viewer"]))
    assert {path: viewer.get(f"/api/v1/{path}").status_code for path in LISTS} == dict.fromkeys(LISTS, 200)


def test_a_role_in_any_part_opens_what_all_share() -> None:
    assert browser_of(UserFactory(roles=["viewer@env:staging"])).get("/gpus/teams/").status_code == 200
    assert browser_of(UserFactory(is_superuser=True)).get("/gpus/teams/").status_code == 200


def test_the_first_page_leads_an_account_without_a_role_to_itself() -> None:
    answer = browser_of(UserFactory()).get("/", follow=True)
    assert answer.redirect_chain == [("/account/", 302)]
    assert "No role yet" in answer.content.decode()


def test_a_role_that_ends_closes_an_open_browser() -> None:
    person = UserFactory(roles=["viewer"])
    client = browser_of(person)
    assert client.get("/gpus/teams/").status_code == 200
    person.bindings.all().delete()
    assert client.get("/gpus/teams/").status_code == 403


def test_one_page_asks_for_the_roles_once(django_assert_max_num_queries) -> None:
    client = browser_of(UserFactory(roles=["viewer"]))
    client.get("/gpus/prices/")
    with django_assert_max_num_queries(8):
        client.get("/gpus/prices/")
