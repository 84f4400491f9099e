"""Laws of the second administrator's consent: its subjects, the right to give it, and the first second one."""

from __future__ import annotations

import pytest
from django.core import mail
from django.test import Client

from accounts.models import Invitation, PendingChange, RoleBinding, Setup, User
from accounts.people import invitations, pending, services, telling
from accounts.people.pending import Proposed
from audit.models import Record
from common.errors import Invalid, Missing, NotAllowed, Refusal, WrongState
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db
OWN = "a password of their own"


@pytest.fixture
def admins() -> tuple[User, User]:
    return UserFactory(roles=["admin"]), UserFactory(roles=["admin"])


def proposed(user: User, by: User, role: str = "approver") -> Proposed:
    done = services.bind(user=user, role=role, scope="*", by=by)
    assert isinstance(done, Proposed)
    return done


def open_(link: str, **data: str) -> int:
    path = link[link.index("/link/") :]
    return Client().post(path, {"password": OWN, "again": OWN} | data).status_code


def can_log_in(user: User, password: str) -> bool:
    return Client().post("/login/", {"email": user.email, "password": password}).status_code == 302


def test_nothing_holds_before_another_administrator_consents(admins):
    admin, other = admins
    user = UserFactory(is_vouched=True)
    change = proposed(user, admin).change
    assert not RoleBinding.objects.filter(user=user).exists()
    pending.consent(pk=change.pk, by=other)
    assert RoleBinding.objects.get(user=user).role == "approver"
    records = Record.objects.filter(action__startswith="change.").order_by("at", "id")
    assert sorted((row.action, row.actor) for row in records) == [
        ("change.consent", other.email),
        ("change.propose", admin.email),
    ]


@pytest.mark.parametrize("who", ["proposer", "subject", "machine", "operator", "elsewhere", "token without approve"])
def test_who_may_not_consent(admins, who):
    admin, other = admins
    subject = UserFactory(is_vouched=True, roles=["admin"])
    change = proposed(subject, admin).change
    by = {
        "proposer": admin,
        "subject": subject,
        "machine": UserFactory(is_service=True, roles=["admin"]),
        "operator": UserFactory(roles=["operator"]),
        "elsewhere": UserFactory(roles=["admin@env:staging"]),
        "token without approve": other,
    }[who]
    if who == "token without approve":
        by.acting_token = TokenClient(other, ["admin", "read"]).token
    with pytest.raises((NotAllowed, Missing)):
        pending.consent(pk=change.pk, by=by)
    assert not RoleBinding.objects.filter(user=subject, role="approver").exists()


def test_a_proposal_ends_by_itself_by_refusal_and_with_its_proposer(admins, clock):
    admin, other = admins
    user = UserFactory(is_vouched=True)
    late = proposed(user, admin).change
    clock.forward(seconds=pending.LASTS.total_seconds())
    with pytest.raises(WrongState):
        pending.consent(pk=late.pk, by=other)
    assert pending.expire() == 1
    refused = proposed(user, admin).change
    assert pending.refuse(pk=refused.pk, by=other).status == "refused"
    with pytest.raises(WrongState):
        pending.consent(pk=refused.pk, by=other)
    orphan = proposed(user, admin).change
    services.change_user(user=admin, by=other, is_active=False)
    with pytest.raises(WrongState):
        pending.consent(pk=orphan.pk, by=other)
    assert not RoleBinding.objects.filter(user=user).exists()


def test_the_same_is_not_proposed_twice(admins):
    user = UserFactory(is_vouched=True)
    proposed(user, admins[0])
    with pytest.raises(WrongState):
        services.bind(user=user, role="approver", scope="*", by=admins[1])


def test_neither_administrator_can_use_the_link_without_the_others_half(admins):
    """Mail is not set up: the new approver's password is set with both halves or not at all."""
    admin, other = admins
    user, first = services.add_user(email="new@example.com", by=admin)
    assert first is not None
    assert open_(first.text) == 302  # the administrator who made the account could have been the one who did this
    assert can_log_in(user, OWN)
    done = proposed(user, admin)
    assert done.code
    _, link = pending.consent(pk=done.change.pk, by=other)
    assert not can_log_in(user, OWN)
    assert link is not None
    assert open_(link.text) == 422
    assert open_(link.text, code="0000-0000-0000-0000-0000") == 422
    assert not can_log_in(user, OWN)
    assert open_(link.text, code=done.code) == 302
    assert can_log_in(user, OWN)
    assert open_(link.text, code=done.code) == 410


def test_who_lost_a_role_and_was_reset_by_one_administrator_is_not_given_it_back_with_that_password(admins):
    """Taking a role away and resetting who held it takes one administrator; together they must not make an approver."""
    admin, other = admins
    user = UserFactory(is_vouched=True, roles=["approver"])
    services.unbind(binding=user.bindings.get(), by=admin)
    user.refresh_from_db()
    link = services.reset_password(user=user, by=admin)
    assert isinstance(link, invitations.Link)
    assert open_(link.text) == 302
    user.refresh_from_db()
    browser, api = Client(), TokenClient(user)
    browser.post("/login/", {"email": user.email, "password": OWN})
    done = proposed(user, admin)
    pending.consent(pk=done.change.pk, by=other)
    assert not can_log_in(user, OWN)
    assert api.get("/api/v1/me").status_code == 401
    assert browser.get("/api/v1/me").status_code == 401


def test_a_reset_between_proposal_and_consent_lets_neither_administrator_in(admins):
    """The proposal promised no link, so the consenting administrator would be shown a whole one."""
    admin, other = admins
    user = UserFactory(is_vouched=True)
    change = proposed(user, admin).change
    link = services.reset_password(user=user, by=other)
    assert isinstance(link, invitations.Link)
    with pytest.raises(WrongState):
        pending.consent(pk=change.pk, by=other)
    assert open_(link.text) == 302
    with pytest.raises(WrongState):
        pending.consent(pk=change.pk, by=other)
    assert not RoleBinding.objects.filter(user=user).exists()


def test_a_reset_ends_sessions_and_tokens(admins):
    admin, other = admins
    plain, approver = UserFactory(roles=["viewer"]), UserFactory(roles=["approver"])
    for user in (plain, approver):
        api, browser = TokenClient(user), Client()
        browser.post("/login/", {"email": user.email, "password": PASSWORD})
        assert browser.get("/api/v1/me").status_code == 200
        done = services.reset_password(user=user, by=admin)
        if isinstance(done, Proposed):
            assert api.get("/api/v1/me").status_code == 200  # nothing yet
            pending.consent(pk=done.change.pk, by=other)
        assert api.get("/api/v1/me").status_code == 401
        assert browser.get("/api/v1/me").status_code == 401
        assert not can_log_in(user, PASSWORD)


def test_a_link_works_once_in_time_and_only_the_newest(admins, clock):
    user, first = services.add_user(email="new@example.com", by=admins[0])
    second = services.reset_password(user=user, by=admins[0])
    assert first is not None
    assert not isinstance(second, Proposed)
    assert open_(first.text) == 410
    clock.forward(seconds=invitations.LASTS.total_seconds() + 1)
    assert open_(second.text) == 410
    third = services.reset_password(user=user, by=admins[0])
    assert not isinstance(third, Proposed)
    assert open_(third.text) == 302
    assert open_(third.text) == 410
    assert third.text not in str(list(Invitation.objects.values()))


def test_guessing_links_is_slowed(admins):
    answers = [Client().get(f"/link/{'x' * 43}/").status_code for _ in range(8)]
    assert answers[0] == 410
    assert answers[-1] == 429


def test_where_mail_is_set_up_no_administrator_sees_a_link(admins, settings):
    settings.EMAIL_HOST = "127.0.0.1"
    answer = TokenClient(admins[0]).post("/api/v1/users", {"email": "new@example.com"})
    assert answer.json()["link"]["link"] is None
    assert [message.to for message in mail.outbox] == [["new@example.com"]]
    text = mail.outbox[0].body
    assert "/link/" not in answer.content.decode()
    assert open_(next(line for line in text.splitlines() if "/link/" in line)) == 302


def test_all_administrators_are_told_once(admins, settings):
    settings.EMAIL_HOST = "127.0.0.1"
    proposed(UserFactory(is_vouched=True), admins[0])
    assert telling.send() == 1
    assert telling.send() == 0
    assert sorted(message.to[0] for message in mail.outbox) == sorted(admin.email for admin in admins)


@pytest.mark.parametrize("act", ["create", "change", "bind", "unbind", "reset"])
def test_no_machine_changes_people_and_roles(act):
    machine, user = UserFactory(is_service=True, roles=["admin"]), UserFactory(roles=["viewer"])
    acts = {
        "create": lambda: services.create_user(email="x@example.com", by=machine),
        "change": lambda: services.change_user(user=user, by=machine, is_active=False),
        "bind": lambda: services.bind(user=user, role="viewer", scope="env:staging", by=machine),
        "unbind": lambda: services.unbind(binding=user.bindings.get(), by=machine),
        "reset": lambda: services.reset_password(user=user, by=machine),
    }
    with pytest.raises(NotAllowed):
        acts[act]()


def test_nobody_sets_another_persons_password(admins):
    with pytest.raises(NotAllowed):
        services.set_password(user=admins[1], password=PASSWORD, by=admins[0])
    with pytest.raises(Invalid):
        services.create_user(email="x@example.com", password=PASSWORD, by=admins[0])


# ── the very first ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_only_administrator_makes_a_second_one_alone_and_an_approver_only_with_them():
    admin, other, third = UserFactory(roles=["admin"]), UserFactory(), UserFactory()
    assert isinstance(services.bind(user=third, role="approver", scope="*", by=admin), Proposed)
    assert isinstance(services.bind(user=other, role="admin", scope="*", by=admin), RoleBinding)
    assert isinstance(services.bind(user=third, role="admin", scope="*", by=admin), Proposed)


def test_a_token_makes_no_second_administrator():
    admin, other = UserFactory(roles=["admin"]), UserFactory()
    admin.acting_token = TokenClient(admin).token
    assert isinstance(services.bind(user=other, role="admin", scope="*", by=admin), Proposed)


@pytest.mark.parametrize("role", ["admin", "approver"])
@pytest.mark.parametrize("how", ["unbound", "deactivated"])
def test_who_takes_power_from_all_others_is_not_let_alone_again(role, how):
    admin, other = UserFactory(roles=["admin"]), UserFactory(roles=[role])
    if how == "unbound":
        services.unbind(binding=other.bindings.get(), by=admin)
    else:
        services.change_user(user=other, by=admin, is_active=False)
    assert isinstance(services.bind(user=UserFactory(), role="admin", scope="*", by=admin), Proposed)
    assert Setup.objects.get().shared_at


def test_an_approver_is_activated_again_only_with_consent(admins):
    admin, other = admins
    user = UserFactory(roles=["approver"], is_active=False)
    done = services.change_user(user=user, by=admin, is_active=True)
    assert isinstance(done, Proposed)
    assert not User.objects.get(pk=user.pk).is_active
    pending.consent(pk=done.change.pk, by=other)
    assert User.objects.get(pk=user.pk).is_active


def test_a_consent_that_cannot_be_carried_out_leaves_it_waiting(admins):
    admin, other = admins
    user = UserFactory(is_vouched=True)
    change = proposed(user, admin).change
    services.change_user(user=user, by=other, is_active=False)
    with pytest.raises(Refusal):
        pending.consent(pk=change.pk, by=other)
    assert PendingChange.objects.get().status == "waiting"


def test_the_page_shows_what_waits_and_a_code_only_once(admins):
    admin, other = admins
    user = UserFactory()
    mine, theirs = Client(), Client()
    mine.force_login(admin)
    theirs.force_login(other)
    response = mine.post("/people/roles/", {"user": user.pk, "role": "approver", "scope": "*"})
    code = response.context["made"]["code"]
    assert code in response.content.decode()
    assert code not in mine.get("/people/").content.decode()
    change = PendingChange.objects.get()
    assert "another administrator must consent" in mine.get("/people/").content.decode()
    done = theirs.post(f"/people/changes/{change.pk}/consent/")
    assert "/link/" in done.content.decode()
    assert "/link/" not in theirs.get("/people/").content.decode()
