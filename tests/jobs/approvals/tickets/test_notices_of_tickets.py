"""Notices of plans and rollouts carry the change record."""

from __future__ import annotations

import pytest

from audit import sealing
from jobs.approvals import reviews
from jobs.approvals.tickets import references
from jobs.models import Plan
from jobs.rollouts import rollout_actions
from notices.alerts import events
from notices.models import Channel, Delivery


@pytest.mark.django_db
def test_a_webhook_of_a_plan_and_of_a_held_rollout_names_it(world, tickets):
    channel = Channel(name="x", kind="webhook", what=["approvals", "rollouts"], url="https://127.0.0.1/hook")
    channel.save()
    sealing.seal_waiting()
    events.read()
    plan = world.plan()
    references.enter(plan, "CHG0030192", by=world.operator)
    world.approved(Plan.objects.get(pk=plan.pk))
    rollout_actions.start(Plan.objects.get(pk=plan.pk), by=world.operator)
    reviews.request(world.plan(), by=world.operator)
    tickets.send("CHG0030192", "hold")
    sealing.seal_waiting()
    events.read()

    sent = {(row.body["action"], row.body["change_record"]) for row in Delivery.objects.all()}
    assert sent == {("plan.request", "CHG0030192"), ("plan.request", ""), ("rollout.ticket-hold", "CHG0030192")}
