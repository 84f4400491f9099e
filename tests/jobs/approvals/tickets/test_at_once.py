"""A start and a hold at the same moment: the hold counts for the start, or for the first step."""

from __future__ import annotations

import pytest

from common.errors import WrongState
from jobs.approvals.tickets import references
from jobs.engine import progress, reconcile
from jobs.models import Plan, Rollout, Step, TicketMessage
from jobs.rollouts import rollout_actions
from tests.jobs.approvals.test_approvals_at_once import at_once

CHG = "CHG0030192"


def prepared(world) -> Plan:
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    return Plan.objects.get(pk=plan.pk)


@pytest.mark.django_db(transaction=True)
def test_a_hold_and_a_start_at_once_start_no_step(world, tickets):
    plan = prepared(world)
    statuses: list[int] = []

    refusals = at_once(
        lambda: rollout_actions.start(plan, by=world.operator),
        lambda: statuses.append(tickets.send(CHG, "hold")),
    )

    assert statuses == [204]
    assert [type(refusal) for refusal in refusals] in ([], [WrongState])
    for rollout in Rollout.objects.all():
        world.run(rollout, seconds=30, step=5)
    assert not Step.objects.exclude(status="queued").exists()


@pytest.mark.django_db(transaction=True)
def test_a_start_that_judged_too_early_waits_for_the_hold_and_is_refused(world, tickets, monkeypatch):
    """The hold is between the start's first look and its transaction."""
    plan = prepared(world)
    was = rollout_actions._checked_start
    monkeypatch.setattr(rollout_actions, "_checked_start", lambda at: tickets.send(CHG, "hold") and was(at))

    with pytest.raises(WrongState, match=CHG):
        rollout_actions.start(plan, by=world.operator)
    assert not Rollout.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_hold_between_the_look_at_a_rollout_and_its_beginning_counts(world, tickets, monkeypatch):
    rollout = rollout_actions.start(prepared(world), by=world.operator)
    was = progress.judgement.refusal_reason
    monkeypatch.setattr(
        progress.judgement, "refusal_reason", lambda plan, **more: tickets.send(CHG, "hold") and was(plan, **more)
    )
    reconcile.advance(rollout.pk, fleet=world.fleet)
    assert Rollout.objects.get(pk=rollout.pk).status == "queued"


@pytest.mark.django_db(transaction=True)
def test_a_hold_between_the_look_at_a_step_and_its_start_counts(world, tickets, monkeypatch):
    rollout = rollout_actions.start(prepared(world), by=world.operator)
    was = reconcile._decide

    def decide(views):
        outcomes = was(views)
        if not TicketMessage.objects.exists():
            assert tickets.send(CHG, "hold") == 204
        return outcomes

    monkeypatch.setattr(reconcile, "_decide", decide)
    world.slice(rollout)
    assert TicketMessage.objects.exists()
    assert set(rollout.steps.values_list("status", flat=True)) == {"queued"}


@pytest.mark.django_db(transaction=True)
def test_the_same_message_twice_at_once_counts_once(tickets, rule):
    statuses: list[int] = []
    at_once(*[lambda: statuses.append(tickets.send(CHG, "hold", message_id="m1"))] * 3)
    assert statuses == [204] * 3
    assert TicketMessage.objects.count() == 1
