"""The log-in at a provider, and the account that its directory made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from accounts.models import Identity, User
from tests.accounts.scim.conftest import Directory, account, roles
from tests.accounts.signon.conftest import LogIn, issuer, log_in
from tests.accounts.signon.issuer import Issuer
from tests.factories import UserFactory

__all__ = ["issuer", "log_in"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def directory(issuer: Issuer, settings: Any) -> Directory:
    """The directory of that provider, which gives roles by its groups."""
    (provider,) = settings.SETPOINT_OIDC
    settings.SETPOINT_OIDC = (replace(provider, scim_groups="displayName"),)
    return Directory(settings.SETPOINT_OIDC[0])


def test_a_log_in_meets_its_account_by_external_id_and_not_by_address(directory: Directory, log_in: LogIn) -> None:
    ada = directory.person("ada@corp.example", externalId="ada-1")
    directory.group("ops", ada["id"])
    answer = log_in(email="another@example.com", groups=["admins"])
    assert answer.status_code == 302, answer.content
    assert Identity.objects.get().user == account(ada)
    assert roles(ada) == {("operator", "env:staging")}, "the claim gives nothing beside the directory's groups"
    assert account(ada).email == "another@example.com", "and the account follows its person's verified address"


@pytest.mark.parametrize("external_id", ["ADA-1", "ada-10", "", "ada@example.com"])
def test_an_equal_address_links_nothing(directory: Directory, log_in: LogIn, external_id: str) -> None:
    ada = directory.person("ada@example.com", externalId=external_id)
    directory.group("approvers", ada["id"])
    assert log_in().status_code == 403
    assert not Identity.objects.exists()


def test_a_linked_account_is_its_subject_s_whatever_the_directory_sends_later(
    directory: Directory, log_in: LogIn
) -> None:
    ada, eve = (directory.person(f"{name}@corp.example", externalId=f"{name}-1") for name in ("ada", "eve"))
    directory.group("ops", ada["id"], eve["id"])
    assert log_in().status_code == 302
    change = {"op": "replace", "value": {"externalId": "eve-2"}}
    directory.patch(f"Users/{ada['id']}", change)
    assert log_in(sub="eve-2", email="eve2@example.com").status_code == 403
    assert Identity.objects.get().user == account(ada)


def test_a_person_whom_the_directory_ended_or_left_without_a_group_does_not_get_in(
    directory: Directory, log_in: LogIn
) -> None:
    ada = directory.person("ada@corp.example", externalId="ada-1")
    assert log_in(groups=["ops"]).status_code == 403
    directory.group("ops", ada["id"])
    browser = Client()
    assert log_in(browser).status_code == 302
    directory.patch(f"Users/{ada['id']}", {"op": "replace", "value": {"active": False}})
    assert browser.get("/account/").status_code == 302
    assert log_in().status_code == 403
    directory.send("DELETE", f"Users/{ada['id']}")
    assert log_in().status_code == 403
    assert not User.objects.get().bindings.exists()


def test_people_who_logged_in_before_are_the_directory_s_to_end(
    directory: Directory, log_in: LogIn, settings: Any
) -> None:
    settings.SETPOINT_OIDC = (replace(directory.provider, scim_groups=""),)
    browser, local = Client(), UserFactory(email="local@example.com")
    assert log_in(browser).status_code == 302
    (matches,) = directory.matches("Users", userName="ADA@example.com")
    assert directory.matches("Users", externalId="ada-1") == [matches]
    assert directory.matches("Users", userName=local.email) == []
    directory.patch(f"Users/{matches}", {"op": "replace", "value": {"active": False}})
    assert browser.get("/account/").status_code == 302


def test_without_the_setting_groups_of_scim_give_nothing_and_take_nothing(
    directory: Directory, log_in: LogIn, settings: Any
) -> None:
    settings.SETPOINT_OIDC = (replace(directory.provider, scim_groups=""),)
    ada = directory.person("ada@corp.example", externalId="ada-1")
    directory.group("admins", ada["id"])
    assert roles(ada) == set()
    assert log_in(groups=["ops"]).status_code == 302
    directory.ok("GET", f"Users/{ada['id']}")
    directory.patch(f"Users/{ada['id']}", {"op": "replace", "path": "displayName", "value": "Ada"})
    assert roles(ada) == {("operator", "env:staging")}
