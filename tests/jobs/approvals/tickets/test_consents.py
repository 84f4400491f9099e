"""One administrator alone takes no requirement away and makes no ticket system that releases."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import PendingChange
from accounts.people import pending
from accounts.people.pending import Proposed
from common.errors import NotAllowed, Stale, WrongState
from jobs.approvals.tickets import connections, rulebook
from jobs.models import ChangeRecord, ChangeRecordRule, TicketConnection
from tests.factories import TokenClient, UserFactory
from tests.jobs.approvals.tickets.ticket_system import SECRET, TicketSystem

PAGE = "/approvals/change-records/"
WHOLE = {"environment": "staging", "pattern": r"CHG\d{7}", "is_required": True, "must_release": True}

pytestmark = pytest.mark.django_db


@pytest.fixture
def other():
    return UserFactory(roles=["admin"])


def stored_rule() -> dict[str, object]:
    return rulebook.as_json(ChangeRecordRule.objects.get())


@pytest.mark.parametrize(
    "less",
    [
        {"pattern": ".*"},
        {"environment": "development"},
        {"must_release": False},
        {"is_required": False, "must_release": False},
        None,
    ],
    ids=["another form", "another environment", "no release", "nothing", "deleted"],
)
def test_what_asks_for_less_waits_for_another_administrator(admin, other, rule, less):
    def ask():
        version = ChangeRecordRule.objects.get().version
        if less is None:
            return rulebook.delete(rule, by=admin, version=version)
        return rulebook.change(rule, by=admin, version=version, **less)

    done = ask()
    assert isinstance(done, Proposed)
    assert stored_rule() == WHOLE
    with pytest.raises(NotAllowed):
        pending.consent(pk=done.change.pk, by=admin)
    assert stored_rule() == WHOLE

    pending.consent(pk=done.change.pk, by=other)
    if less is None:
        assert not ChangeRecordRule.objects.exists()
    else:
        assert stored_rule() == WHOLE | less


def test_what_asks_for_more_or_the_same_is_done_at_once(admin, other):
    row = rulebook.create(by=admin, environment="staging", pattern=r"CHG\d{7}", is_required=False)
    row = rulebook.change(row, by=admin, version=1, pattern=r"OPS-\d+")  # it asks for nothing yet
    row = rulebook.change(row, by=admin, version=2, is_required=True)
    row = rulebook.change(row, by=admin, version=3, must_release=True)
    row = rulebook.change(row, by=admin, version=4, is_required=False)  # a release needs a reference, too
    assert (row.version, PendingChange.objects.count()) == (5, 0)


def test_a_consent_is_for_the_version_that_was_proposed(admin, other, rule):
    done = rulebook.change(rule, by=admin, version=1, must_release=False)
    pending.refuse(pk=done.change.pk, by=other)
    again = rulebook.change(rule, by=admin, version=1, must_release=False)
    rulebook.change(rule, by=other, version=1, is_required=True)
    with pytest.raises(Stale):
        pending.consent(pk=again.change.pk, by=other)
    assert stored_rule() == WHOLE


def test_one_administrator_who_is_alone_decides_alone(admin, rule):
    assert isinstance(rulebook.change(rule, by=admin, version=1, must_release=False), ChangeRecordRule)
    assert rulebook.delete(ChangeRecordRule.objects.get(), by=admin, version=2) is None
    assert connections.create(by=admin, name="Jira", secret=SECRET).is_active


def test_a_ticket_system_of_one_administrator_releases_nothing_until_another_consents(admin, other, rule, monkeypatch):
    monkeypatch.setattr("tests.jobs.approvals.tickets.ticket_system.consent", lambda: None)
    tickets = TicketSystem(admin)
    assert not tickets.row.is_active
    assert tickets.send("CHG0030192", "release") == 401
    assert not ChangeRecord.objects.exists()

    change = PendingChange.objects.get()
    with pytest.raises(NotAllowed):
        pending.consent(pk=change.pk, by=admin)
    assert tickets.send("CHG0030192", "release") == 401
    pending.consent(pk=change.pk, by=other)
    assert tickets.send("CHG0030192", "release") == 204
    assert ChangeRecord.objects.get().state == "release"


def test_a_connection_that_was_deleted_is_not_brought_back_by_a_consent(admin, other):
    row = connections.create(by=admin, name="Jira", secret=SECRET)
    connections.delete(row, by=admin, version=row.version)
    with pytest.raises(WrongState):
        pending.consent(pk=PendingChange.objects.get().pk, by=other)
    assert not TicketConnection.objects.exists()


def test_the_page_changes_the_version_that_it_showed_and_rest_answers_that_it_waits(admin, other, rule):
    client = Client()
    client.force_login(admin)
    shown = client.get(f"{PAGE}?environment=staging").content.decode()
    assert f'name="version" value="{rule.version}"' in shown
    fields = {
        "environment": "staging",
        "pattern": r"CHG\d{7}",
        "is_required": "on",
        "must_release": "on",
        "shown": "staging",
    }
    assert client.post(PAGE, fields).status_code == 422, "not without the version that was seen"
    assert client.post(PAGE, fields | {"version": rule.version + 1}).status_code == 422
    assert client.post(PAGE, fields | {"version": rule.version, "pattern": ".*"}).status_code == 302
    assert stored_rule() == WHOLE
    PendingChange.objects.all().delete()
    production = rulebook.create(by=admin, environment="production", pattern=r"OPS-\d+")
    assert production.version == rule.version
    other_one = fields | {"environment": "production", "version": rule.version}
    assert client.post(PAGE, other_one).status_code == 422, "the form showed the rule of staging"
    rulebook.delete(production, by=admin, version=1)
    pending.consent(pk=PendingChange.objects.get().pk, by=other)
    PendingChange.objects.all().delete()

    api = TokenClient(admin)
    answer = api.patch(
        f"/api/v1/change-record-rules/{rule.pk}", {"must_release": False}, headers={"If-Match": f'"{rule.version}"'}
    )
    assert answer.status_code == 202
    assert answer.json()["status"] == "waiting"
    assert stored_rule() == WHOLE
