"""A log-in by SAML, and the account that the directory of the same provider made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from accounts.models import Identity, ScimUser
from accounts.people import identities
from accounts.scim.directory import adopt
from audit.models import Record
from tests.accounts.scim.conftest import Directory, account, roles
from tests.accounts.signon.saml import idp
from tests.accounts.signon.saml.conftest import LogIn
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def directory(corp: None, settings: Any) -> Directory:
    """The directory of that provider, which gives roles by its groups."""
    settings.SETPOINT_SAML = (replace(idp.provider(), scim_groups="displayName", scim_subject="oid"),)
    return Directory(settings.SETPOINT_SAML[0])


def test_a_log_in_meets_its_account_by_the_attribute_and_has_the_directorys_groups(
    log_in: LogIn, directory: Directory
) -> None:
    ada = directory.person("ada@corp.example", externalId="o-1")
    given = {"email": ["ada@corp.example"], "groups": ["admins"]}
    assert log_in(attributes=given | {"oid": ["o-1"]}).status_code == 403, "in no group of the directory"
    directory.group("ops", ada["id"])
    assert log_in(attributes=given | {"oid": ["o-2"]}).status_code == 403
    assert log_in(attributes=given).status_code == 403
    assert log_in(attributes=given | {"oid": ["o-1"]}).status_code == 302
    assert Identity.objects.get().user == account(ada)
    assert roles(ada) == {("operator", "env:staging")}, "the attribute gives nothing beside the directory's groups"
    directory.patch(f"Users/{ada['id']}", {"op": "replace", "value": {"active": False}})
    assert log_in(attributes=given | {"oid": ["o-1"]}).status_code == 403


def test_an_operator_links_a_local_account_on_the_server(log_in: LogIn) -> None:
    root = UserFactory(email="ada@example.com", roles=["admin"])
    refused = log_in()
    assert refused.status_code == 403
    assert "--provider=corp --email=ada@example.com --subject=ada-1" in refused.context["refusal"]["advice"]
    call_command("link_identity", provider="corp", email="ada@example.com", subject="ada-1")
    assert log_in().status_code == 302
    root.refresh_from_db()
    assert set(root.grants) == {("operator", "env:staging")}, "its roles are those of its groups"


def test_an_operator_moves_people_of_a_provider_that_is_gone(
    log_in: LogIn, directory: Directory, settings: Any
) -> None:
    old = replace(idp.provider(), issuer="https://old.example.com")
    settings.SETPOINT_SAML = (old,)
    ada = UserFactory(email="ada@example.com")
    identities.link(user=ada, provider=old, subject="old-1", by="a test")
    adopt(old)
    options = {"provider": "corp", "email": "ada@example.com", "subject": "ada-1"}
    settings.SETPOINT_SAML = (idp.provider(), replace(old, key="old"))
    with pytest.raises(CommandError, match="has an identity already"):
        call_command("link_identity", **options)
    settings.SETPOINT_SAML = (idp.provider(),)
    assert log_in().status_code == 403
    call_command("link_identity", **options)
    assert log_in().status_code == 302
    assert (Identity.objects.get().issuer, Identity.objects.get().user) == (idp.ENTITY, ada)
    assert not ScimUser.objects.exists(), "the new directory makes its own"
    record = Record.objects.get(action="user.link-identity", before__isnull=False)
    assert (record.before["issuer"], record.before["subject"]) == ("https://old.example.com", "old-1")
    assert (record.after["issuer"], record.after["subject"]) == (idp.ENTITY, "ada-1")
    with pytest.raises(CommandError, match="has an identity already"):
        call_command("link_identity", **options | {"subject": "ada-2"})
