"""Messages of ticket systems: what is not signed, old, repeated or unknown changes nothing, and tells nothing."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from audit.models import Record
from common.clock import now
from jobs.approvals import reviews
from jobs.approvals.tickets import connections, references
from jobs.models import Approval, ChangeRecord
from tests.jobs.approvals.tickets.ticket_system import sign

CHG = "CHG0030192"
HOLD = json.dumps({"reference": CHG, "state": "hold"}).encode()


def state(reference: str = CHG) -> str:
    row = ChangeRecord.objects.filter(pk=reference).first()
    return row.state if row else ""


def test_a_message_is_carried_out_and_recorded_with_the_connection_as_its_actor(tickets, rule):
    assert tickets.send(CHG, "hold", note="CAB postponed") == 204

    assert state() == "hold"
    record = Record.objects.get(action="change-record.hold")
    assert (record.actor, record.target_name, record.message) == ("ticket system ServiceNow", CHG, "CAB postponed")


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-signature": ""},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1a," + "A" * 44},
        {"webhook-signature": "é"},
        {"webhook-id": "another"},
        {"webhook-id": ""},
        {"webhook-id": "x" * 200},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "1e9"},
        {"webhook-timestamp": "-5"},
        {"webhook-timestamp": "9" * 30},
        {"webhook-timestamp": "9" * 12},  # no year that a date can have
        {"webhook-timestamp": "\u0661"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_signed_right_is_refused_with_one_answer(tickets, rule, headers):
    answer = tickets.post(HOLD, **headers)
    assert (answer.status_code, state()) == (401, "")
    assert answer.json()["code"] == "not-signed"


def test_a_changed_body_and_an_unknown_connection_get_the_same_answer(tickets, rule):
    changed = tickets.post(HOLD, **{"webhook-signature": sign("m", 1, b"{}")}).json()
    tickets.path = tickets.path[:-1] + ("0" if tickets.path[-1] != "0" else "1")
    unknown = tickets.post(HOLD).json()

    for answer in (changed, unknown):
        del answer["instance"], answer["request_id"]
    assert changed == unknown
    assert state() == ""


def test_several_signatures_may_be_sent_while_a_secret_is_changed(tickets, rule):
    right = sign("m1", int(now().timestamp()), HOLD)
    assert tickets.post(HOLD, message_id="m1", **{"webhook-signature": f"v1,AAAA {right}"}).status_code == 204
    assert state() == "hold"


@pytest.mark.parametrize(("later", "status"), [(-290, 204), (290, 204), (-310, 401), (310, 401)])
def test_a_timestamp_counts_for_five_minutes(tickets, rule, later, status):
    assert tickets.send(CHG, "hold", later=later) == status


def test_a_repeated_message_changes_nothing(tickets, rule, clock):
    tickets.send(CHG, "hold", message_id="m1")
    clock.forward(10)
    tickets.send(CHG, "release")
    clock.forward(10)
    assert tickets.send(CHG, "hold", message_id="m1") == 204

    assert state() == "release"


def test_a_message_that_comes_late_does_not_undo_a_newer_one(tickets, rule):
    tickets.send(CHG, "hold")
    assert tickets.send(CHG, "release", later=-60) == 204
    assert state() == "hold"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[1]", 422),
        (b'{"reference": "CHG0030192", "state": "hold", "state": "release"}', 422),
        (b'{"reference": "CHG0030192", "state": "hold", "approve": true}', 422),
        (b'{"reference": "CHG0030192", "state": "approve"}', 422),
        (b'{"reference": "CHG0030192", "state": "unknown"}', 422),
        (b'{"reference": "CHG 1", "state": "hold"}', 422),
        (b'{"reference": "CHG0030192"}', 422),
        (b'{"reference": "CHG0030192", "state": "hold", "note": "a\\u0000b"}', 422),
        (b'{"reference": "CHG0030192", "state": "hold", "note": "' + b"x" * 20_000 + b'"}', 413),
    ],
)  # fmt: skip
def test_what_is_signed_and_not_understood_is_refused(tickets, rule, body, status):
    answer = tickets.post(body)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert state() == ""


def test_a_reference_that_no_plan_names_gets_the_same_answer(tickets, rule, world):
    references.enter(world.plan(), CHG, by=world.operator)
    answers = [tickets.post(HOLD.replace(b"CHG0030192", name)) for name in (b"CHG0030192", b"CHG9999999", b"other")]

    assert {(answer.status_code, answer.content) for answer in answers} == {(204, b"")}
    assert state("CHG9999999") == "hold", "a release may come long before the plan that names it"
    assert state("other") == "", "and no other text fills the table"


def test_guessing_is_slowed_down_and_real_messages_still_arrive(tickets, rule):
    answers = [tickets.post(HOLD, **{"webhook-signature": "v1,x"}).status_code for _ in range(8)]
    assert answers == [401] * 5 + [429] * 3
    assert tickets.send(CHG, "hold") == 204


def test_one_connection_cannot_send_without_end(tickets, rule, monkeypatch):
    monkeypatch.setattr("jobs.rollouts.ticket_messages.MOST_A_MINUTE", 3)
    assert [tickets.send(CHG, "hold") for _ in range(5)] == [204] * 3 + [429] * 2


def test_a_ticket_system_never_approves(tickets, rule, world):
    plan = reviews.request(world.plan(), by=world.operator)
    references.enter(plan, CHG, by=world.operator)

    tickets.send(CHG, "release")

    plan.refresh_from_db()
    assert plan.status == "review"
    assert not Approval.objects.exists()


def test_a_deleted_connection_is_refused_and_what_it_held_stays_held(tickets, rule, admin):
    tickets.send(CHG, "hold")
    connections.delete(tickets.row, by=admin, version=tickets.row.version)
    assert tickets.send(CHG, "release") == 401
    assert state() == "hold"


def test_no_cookie_and_no_token_is_looked_at(tickets, rule, admin):
    """A browser of an administrator that is led here holds nothing."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin)
    assert client.post(tickets.path, HOLD, "application/json").status_code == 401
    assert client.get(tickets.path).status_code == 405
