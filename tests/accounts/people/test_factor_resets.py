"""Laws of another person's second factor: a reset takes two administrators where a new password does."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import PendingChange, RecoveryCode, SecondFactor, User
from accounts.people import factor_resets, pending, services
from audit.models import Record
from common.errors import NotAllowed, WrongState
from tests.accounts.authenticator import enroll, is_in
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def admins() -> tuple[User, User]:
    return UserFactory(roles=["admin"]), UserFactory(roles=["admin"])


def asks_for_a_code(user: User) -> bool:
    return Client().post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 200


def page_of(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def test_for_one_with_power_nothing_happens_before_another_consents(admins) -> None:
    admin, other = admins
    user = UserFactory(roles=["approver@env:staging"])
    enroll(user)
    assert "Reset second factor" in page_of(admin).get("/people/").content.decode()
    assert page_of(admin).post(f"/people/{user.pk}/reset-second-factor/").status_code == 302
    assert asks_for_a_code(user)
    change = PendingChange.objects.get(kind=factor_resets.KIND)
    for by in (admin, user, UserFactory(roles=["operator"])):
        with pytest.raises(Exception, match=r"another administrator|no such change"):
            pending.consent(pk=change.pk, by=by)
    assert asks_for_a_code(user)
    pending.consent(pk=change.pk, by=other)
    assert not asks_for_a_code(user)
    assert not RecoveryCode.objects.exists()
    assert Record.objects.get(action="second-factor.reset").actor == other.email


def test_one_without_power_is_reset_at_once_and_logged_out(admins) -> None:
    user = UserFactory(roles=["operator"])
    enroll(user)
    browser = page_of(user)
    browser.get("/account/")
    assert page_of(admins[0]).post(f"/people/{user.pk}/reset-second-factor/").status_code == 302
    assert not is_in(browser)
    assert not asks_for_a_code(user)


def test_over_rest_it_is_the_same(admins) -> None:
    client = TokenClient(admins[0])
    user, approver = UserFactory(roles=["operator"]), UserFactory(roles=["approver"])
    path = "/api/v1/users/{}/actions/reset-second-factor".format
    none = client.post(path(user.pk))
    assert (none.status_code, none.json()["code"]) == (409, "wrong-state")
    for person in (user, approver):
        enroll(person)
    assert client.get(f"/api/v1/users/{user.pk}").json()["has_second_factor"]
    done = client.post(path(user.pk))
    assert (done.status_code, done.json()["has_second_factor"]) == (200, False)
    waits = client.post(path(approver.pk))
    assert (waits.status_code, waits.json()["kind"]) == (202, factor_resets.KIND)
    assert client.get(f"/api/v1/users/{approver.pk}").json()["has_second_factor"]


def test_a_new_password_leaves_the_factor(admins) -> None:
    user = UserFactory(roles=["operator"])
    enroll(user)
    services.reset_password(user=user, by=admins[0])
    assert SecondFactor.objects.filter(user=user).exists()


def test_who_may_not(admins) -> None:
    user = UserFactory(roles=["operator"])
    with pytest.raises(WrongState, match="no second factor"):
        factor_resets.reset(user=user, by=admins[0])
    enroll(user)
    for by in (UserFactory(roles=["operator"]), UserFactory(roles=["admin@env:staging"]), user):
        with pytest.raises(NotAllowed):
            factor_resets.reset(user=user, by=by)
    enroll(admins[0])
    with pytest.raises(NotAllowed, match="your own"):
        factor_resets.reset(user=admins[0], by=admins[0])
    assert SecondFactor.objects.count() == 2


def test_a_factor_that_was_set_up_after_the_proposal_is_not_reset_by_it(admins) -> None:
    admin, other = admins
    user = UserFactory(roles=["approver"])
    enroll(user)
    factor_resets.reset(user=user, by=admin)
    SecondFactor.objects.all().delete()
    enroll(user)
    with pytest.raises(WrongState, match="another"):
        pending.consent(pk=PendingChange.objects.get().pk, by=other)
    assert asks_for_a_code(user)


def test_on_the_server_one_who_is_alone_is_let_in_again() -> None:
    user = UserFactory(roles=["admin"])
    enroll(user)
    call_command("reset_second_factor", user.email.upper(), stdout=StringIO())
    assert not asks_for_a_code(user)
    assert Record.objects.get(action="second-factor.reset").actor == "command line"
    for email in (user.email, "unknown@example.com"):
        with pytest.raises(CommandError):
            call_command("reset_second_factor", email)
