"""Rows about people give no power when they were written to the database without the key."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from accounts.access import tokens
from accounts.access.session_store import stored
from accounts.models import (
    ApiToken,
    Invitation,
    LiveSession,
    Passkey,
    PendingChange,
    RecoveryCode,
    RoleBinding,
    SecondFactor,
    Setup,
    User,
    WorkloadRule,
)
from accounts.people import bootstrap, invitations, pending, services
from accounts.people.pending import Proposed
from accounts.permissions import may
from accounts.workloads import rules
from audit.marked import mark_rows
from audit.models import Record
from common.clock import now
from common.errors import WrongState
from tests.accounts.authenticator import enroll
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db
OWN = "a password of mallory's own"
KEY = "m" * 32


@pytest.fixture
def mallory() -> User:
    return UserFactory(email="mallory@example.com", roles=["operator"])


@pytest.fixture
def approver() -> User:
    return UserFactory(email="approver@example.com", roles=["approver"])


def again(user: User) -> User:
    """Return the user as a later request reads them."""
    return User.objects.get(pk=user.pk)


def logs_in(user: User, password: str) -> bool:
    return Client().post("/login/", {"email": user.email, "password": password}).status_code == 302


def test_each_row_that_setpoint_writes_is_genuine(mallory, approver):
    tokens.issue(user=mallory, name="mine", scopes=["read"], days=1, by=mallory)
    admins = UserFactory(roles=["admin"]), UserFactory(roles=["admin"])
    services.bind(user=mallory, role="approver", scope="*", by=admins[0])
    services.change_user(user=mallory, by=admins[0], is_active=False)
    services.change_user(user=mallory, by=admins[0], is_active=True)
    services.reset_password(user=UserFactory(), by=admins[0])
    enroll(mallory)
    Passkey.objects.create(user=mallory, name="x", credential="YQ", user_handle="YQ", public_key="YQ")
    machine = UserFactory(is_service=True)
    sent = {"name": "x", "issuer": "https://gitlab.com", "audience": rules.default_audience(), "minutes": 5}
    rules.make(by=admins[0], account=machine.email, conditions={"sub": "x"}, scopes=["read"], **sent)
    marked = (User, RoleBinding, ApiToken, Invitation, PendingChange, Setup, SecondFactor, RecoveryCode, Passkey)
    for kind in (*marked, WorkloadRule):
        rows = list(kind.objects.all())
        assert rows
        assert all(row.is_genuine for row in rows), kind


def test_a_role_put_into_the_table_is_none(mallory):
    at = now() - timedelta(days=9)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO accounts_rolebinding (user_id, role, scope, created_at) VALUES (%s, 'approver', '*', %s)",
            [mallory.pk, at],
        )
    assert RoleBinding.objects.filter(user=mallory, role="approver").exists()
    assert not may(again(mallory), "approver", ["*"])
    assert may(again(mallory), "operator", ["*"]), "what was given is still there"


@pytest.mark.parametrize("column", ["role", "scope", "user", "created_at"])
def test_a_role_changed_in_the_table_is_none(mallory, approver, column):
    row = RoleBinding.objects.get(user=approver)
    values = {"role": "admin", "scope": "env:production", "user": mallory, "created_at": now() - timedelta(days=9)}
    RoleBinding.objects.filter(pk=row.pk).update(**{column: values[column]})
    for user in (mallory, approver):
        assert not any(may(again(user), role, ["*", "env:production"]) for role in ("approver", "admin"))


def test_a_forged_role_does_not_stand_in_the_way_of_a_real_one(mallory):
    RoleBinding.objects.filter(user=mallory).update(mac="")
    assert not may(again(mallory), "operator", ["*"])
    services.bind(user=again(mallory), role="operator", scope="*", by=UserFactory(roles=["admin"]))
    assert may(again(mallory), "operator", ["*"])


def test_a_password_put_into_the_table_opens_nothing(mallory, approver):
    assert logs_in(approver, PASSWORD)
    User.objects.filter(pk=approver.pk).update(password=make_password(OWN))
    assert not logs_in(approver, OWN)
    User.objects.filter(pk=approver.pk).update(password=mallory.password)
    assert not logs_in(approver, PASSWORD)


def test_a_row_that_was_changed_is_not_made_right_by_a_later_change_of_ours(approver):
    User.objects.filter(pk=approver.pk).update(password=make_password(OWN))
    changed = again(approver)
    changed.first_name = "A."
    changed.save()
    changed.save(update_fields=["is_vouched"])
    services.change_user(user=changed, by=UserFactory(roles=["admin"]), is_active=False)
    assert not again(approver).is_genuine


@pytest.mark.parametrize("column", ["is_superuser", "is_active", "is_vouched", "email", "is_service"])
def test_a_person_changed_in_the_table_holds_nothing(approver, column):
    value = "other@example.com" if column == "email" else not getattr(approver, column)
    User.objects.filter(pk=approver.pk).update(**{column: value})
    assert not may(again(approver), "approver", ["*"])
    assert not may(again(approver), "viewer", ["*"])


def test_two_people_whose_rows_were_exchanged_hold_nothing(mallory, approver):
    """Mallory's name, password and mark in the row that the approver's roles belong to."""
    mine = User.objects.filter(pk=mallory.pk).values("username", "email", "password", "is_vouched", "mac").get()
    User.objects.filter(pk=mallory.pk).update(username="x", email="x@example.com")
    User.objects.filter(pk=approver.pk).update(**mine)
    assert not logs_in(mallory, PASSWORD)
    assert not may(again(approver), "approver", ["*"])


@pytest.mark.parametrize("column", ["user", "scopes", "expires_at", "secret_hash"])
def test_a_token_changed_in_the_table_opens_nothing(mallory, approver, column):
    client = TokenClient(mallory, ["read"])
    assert client.get("/api/v1/plans").status_code == 200
    other = TokenClient(approver).token.secret_hash
    values = {
        "user": approver,
        "scopes": ["read", "approve"],
        "expires_at": now() + timedelta(days=3),
        "secret_hash": other,
    }
    ApiToken.objects.filter(pk=client.token.pk).update(**{column: values[column]})
    assert client.get("/api/v1/plans").status_code == 401


def test_a_session_copied_under_a_key_of_ones_own_opens_nothing(approver):
    browser = Client()
    browser.force_login(approver)
    real = Session.objects.get()
    assert browser.get("/").status_code == 200
    Session.objects.create(session_key=stored(KEY), session_data=real.session_data, expire_date=real.expire_date)
    LiveSession.objects.create(key=stored(KEY), user=approver, address="127.0.0.1")
    thief = Client()
    thief.cookies["sessionid"] = KEY
    assert thief.get("/", follow=False).status_code == 302, "sent to the log-in"
    assert browser.get("/").status_code == 200


@pytest.mark.parametrize("way", ["inserted", "moved", "without its code"])
def test_a_link_put_into_the_table_sets_no_password(mallory, approver, way):
    secret = "s" * 43
    if way == "inserted":
        Invitation.objects.create(user=approver, token_hash="-", expires_at=now() + timedelta(days=1))
        Invitation.objects.update(token_hash=invitations.hash_of(secret))
    elif way == "moved":
        secret = invitations.make(mallory).text.rstrip("/").rpartition("/")[2]
        Invitation.objects.update(user=approver)
    else:
        secret = invitations.make(approver, code_hash=invitations.hash_of("x")).text.rstrip("/").rpartition("/")[2]
        Invitation.objects.update(code_hash="")
    Client().post(f"/link/{secret}/", {"password": OWN, "again": OWN, "code": ""})
    assert not logs_in(approver, OWN)


@pytest.mark.parametrize("column", ["proposed_by", "wanted", "subject", "kind"])
def test_a_proposal_changed_in_the_table_is_not_carried_out(mallory, approver, column):
    admin, other = UserFactory(roles=["admin"]), UserFactory(roles=["admin"])
    done = services.bind(user=UserFactory(is_vouched=True), role="approver", scope="env:staging", by=admin)
    assert isinstance(done, Proposed)
    values = {"proposed_by": UserFactory(roles=["admin"]), "wanted": {"role": "admin", "scope": "*"},
              "subject": mallory, "kind": "password.reset"}  # fmt: skip
    PendingChange.objects.filter(pk=done.change.pk).update(**{column: values[column]})
    with pytest.raises(WrongState, match="outside Setpoint"):
        pending.consent(pk=done.change.pk, by=other)


def test_one_who_says_in_the_table_that_there_never_was_a_second_one_is_not_believed():
    admin = UserFactory(roles=["admin"])
    services.bind(user=UserFactory(), role="admin", scope="*", by="a test")
    bootstrap.note()
    RoleBinding.objects.exclude(user=admin).delete()
    Setup.objects.update(shared_at=None)
    assert not bootstrap.needs_no_consent(again(admin))


def test_rows_of_before_the_marks_get_theirs_from_the_migration(mallory):
    """The migration's own function marks the rows of the models that it is given."""
    for kind in (User, RoleBinding):
        kind.objects.update(mac="")
        assert mark_rows(kind, kind.MARKED) == kind.objects.count()
        assert all(row.is_genuine for row in kind.objects.all())


def test_rows_that_were_changed_are_named_and_accepted_by_a_person_at_the_machine(mallory):
    call_command("mark_rows")
    User.objects.filter(pk=mallory.pk).update(is_superuser=True)
    output = StringIO()
    with pytest.raises(CommandError, match="1 rows"):
        call_command("mark_rows", stdout=output)
    assert mallory.email in output.getvalue()
    with pytest.raises(CommandError, match="why"):
        call_command("mark_rows", accept=" ")
    assert not again(mallory).is_genuine
    call_command("mark_rows", accept="made by hand on purpose")
    assert again(mallory).is_genuine
    assert Record.objects.get(action="rows.accept").message == "made by hand on purpose"


def test_another_key_makes_nobody_anything_until_rows_are_accepted(approver, settings):
    settings.SETPOINT_AUDIT_KEY = "another key, as long as the one before was at least"
    assert not may(again(approver), "approver", ["*"])
    call_command("mark_rows", accept="key replaced")
    assert may(again(approver), "approver", ["*"])
