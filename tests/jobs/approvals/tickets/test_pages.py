"""The pages: the rule and the ticket systems, and the field of a plan."""

from __future__ import annotations

import pytest
from django.test import Client

from jobs.models import ChangeRecordRule, Plan, TicketConnection
from tests.jobs.approvals.tickets.ticket_system import SECRET

PAGE = "/approvals/change-records/"


def client_of(person) -> Client:
    client = Client()
    client.force_login(person)
    return client


@pytest.mark.django_db
def test_a_rule_and_a_ticket_system_are_set_up_and_the_secret_never_shown(admin):
    client = client_of(admin)
    fields = {"environment": "staging", "pattern": r"CHG\d{7}", "is_required": "on"}
    assert client.post(PAGE, fields | {"pattern": "(a+)+"}).status_code == 422
    assert client.post(PAGE, fields).status_code == 302
    assert client.post(PAGE, fields | {"must_release": "on"}).status_code == 422, "it has a rule already"
    assert client.post(PAGE, fields | {"must_release": "on", "version": 1, "shown": "staging"}).status_code == 302
    assert client.post(f"{PAGE}connections/", {"name": "Jira", "secret": "short"}).status_code == 422
    assert client.post(f"{PAGE}connections/", {"name": "Jira", "secret": SECRET}).status_code == 302

    rule, row = ChangeRecordRule.objects.get(), TicketConnection.objects.get()
    assert (rule.must_release, rule.version) == (True, 2)
    page = client.get(PAGE).content.decode()
    assert f"/hooks/change-records/{row.pk}" in page
    assert SECRET not in page

    client.post(f"{PAGE}rules/{rule.pk}/delete/", {"version": rule.version})
    client.post(f"{PAGE}connections/{row.pk}/delete/", {"version": row.version})
    assert (ChangeRecordRule.objects.count(), TicketConnection.objects.count()) == (0, 0)


def test_the_reference_is_entered_on_the_plans_page(world, rule):
    plan, client = world.approved(), client_of(world.operator)
    address = f"/plans/P-{plan.number}/"
    assert 'name="change_record"' in client.get(address).content.decode()

    refused = client.post(f"{address}change-record/", {"change_record": "INC1"})
    assert (refused.status_code, "INC1" in refused.content.decode()) == (422, True)
    assert client.post(f"{address}change-record/", {"change_record": "CHG0030192"}).status_code == 302
    assert Plan.objects.get(pk=plan.pk).change_record == "CHG0030192"
    assert "not released yet" in client.get(address).content.decode()
    assert "CHG0030192" in client.get("/plans/").content.decode()
