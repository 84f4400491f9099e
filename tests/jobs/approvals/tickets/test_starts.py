"""A plan starts, and continues, only as its change record permits (law 2)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from audit.models import Record
from common.clock import now
from common.errors import Invalid, NotAllowed, WrongState
from jobs.approvals import plan_actions
from jobs.approvals.tickets import obstacles, references, rulebook
from jobs.engine import reconcile
from jobs.models import ChangeRecord, ChangeRecordRule, Plan, Rollout
from jobs.rollouts import rollout_actions
from tests.factories import UserFactory
from tests.jobs.approvals.tickets.ticket_system import consent

CHG = "CHG0030192"
REBOOT = {"cmdline.iommu": "pt"}


def start(world, plan, **when):
    return rollout_actions.start(Plan.objects.get(pk=plan.pk), by=world.operator, **when)


def refused(world, plan) -> str:
    """The one answer, of the page and of the start itself."""
    answer = plan_actions.check_actions(Plan.objects.get(pk=plan.pk), world.operator)["start"].reason
    with pytest.raises(WrongState) as refusal:
        start(world, plan)
    assert str(refusal.value) == answer
    return answer


def test_without_a_rule_and_without_a_reference_nothing_is_needed(world):
    assert start(world, world.approved()).status == "queued"


def test_a_start_waits_for_a_reference_and_for_its_release(world, rule, tickets):
    plan = world.approved()
    assert r"CHG\d{7}" in refused(world, plan)

    references.enter(plan, CHG, by=world.operator)
    assert "not released" in refused(world, plan)

    tickets.send(CHG, "release")
    rollout = start(world, plan)
    record = Record.objects.get(action="rollout.start")
    assert (record.after["change_record"], rollout.plan.change_record) == (CHG, CHG)


@pytest.mark.parametrize("state", ["hold", "closed"])
def test_a_hold_counts_also_where_no_rule_requires_anything(world, tickets, state):
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    tickets.send(CHG, state, note="CAB postponed")
    assert "CAB postponed" in refused(world, plan)


def test_a_release_may_come_before_its_plan(world, rule, tickets):
    tickets.send(CHG, "release")
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    assert start(world, plan)


def test_a_reference_of_another_form_is_refused_and_names_the_form(world, rule):
    plan = world.plan()
    for text in ("INC0000001", "CHG1", "CHG0030192 ; x", "xCHG0030192", "CHG00301920"):
        with pytest.raises(Invalid) as refusal:
            references.enter(plan, text, by=world.operator)
        assert refusal.value.fields["change_record"]
    assert r"CHG\d{7}" in refusal.value.fields["change_record"][0]


def test_who_may_not_plan_there_enters_no_reference(world, rule):
    for role in ("viewer", "approver"):
        with pytest.raises(NotAllowed):
            references.enter(world.plan(), CHG, by=UserFactory(roles=[role]))


def test_a_stricter_form_applies_to_what_waits(world, rule, tickets):
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    tickets.send(CHG, "release")
    rulebook.change(rule, by=world.admin, version=rule.version, pattern=r"CHG9\d{6}")
    consent()
    assert "CHG9" in refused(world, plan)


def test_a_scheduled_start_is_judged_again_when_its_time_comes(world, rule, tickets):
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    tickets.send(CHG, "release")
    rollout = start(world, plan, at=now() + timedelta(hours=1))
    tickets.send(CHG, "hold")

    world.run(rollout, seconds=5000, step=60)
    assert (rollout.status, CHG in rollout.waiting_for) == ("queued", True)

    tickets.send(CHG, "release")
    world.run(rollout, seconds=1200, step=5)
    assert rollout.status == "succeeded"


def test_a_scheduled_start_needs_what_a_rule_of_after_it_was_scheduled_requires(world, admin, tickets):
    """No hold says so: only its own judgment when it begins."""
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    rollout = start(world, plan, at=now() + timedelta(hours=1))
    rulebook.create(by=admin, environment="staging", pattern=r"CHG\d{7}", must_release=True)

    world.run(rollout, seconds=5000, step=60)
    assert (rollout.status, "not released yet" in rollout.waiting_for) == ("queued", True)
    tickets.send(CHG, "release")
    world.run(rollout, seconds=1200, step=5)
    assert rollout.status == "succeeded"


def test_a_hold_stops_a_running_rollout_and_a_release_lets_it_continue(make_world, tickets):
    world = make_world(nodes=3)
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    references.enter(plan, CHG, by=world.operator)
    rollout = start(world, plan)
    world.until(rollout, "restarting")
    tickets.send(CHG, "hold")
    world.run(rollout, seconds=3600, step=20)

    statuses = list(rollout.steps.order_by("position").values_list("status", flat=True))
    assert statuses == ["succeeded", "queued", "queued"], "what was disturbed is finished, and no other starts"
    assert (rollout.status, CHG in rollout.waiting_for) == ("running", True)
    record = Record.objects.get(action="rollout.ticket-hold")
    assert (record.actor, record.cluster_id) == ("ticket system ServiceNow", world.cluster.pk)

    tickets.send(CHG, "release")
    world.run(rollout, seconds=3600, step=20)
    assert rollout.status == "succeeded"
    assert Record.objects.filter(action="rollout.ticket-release", target=f"rollout:{rollout.pk}").count() == 1


def test_a_hold_that_comes_before_anything_is_disturbed_gives_the_node_back(make_world, tickets):
    world = make_world(nodes=2)
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="2"))
    references.enter(plan, CHG, by=world.operator)
    rollout = start(world, plan)
    reconcile.advance(rollout.pk, fleet=world.fleet)
    assert rollout.steps.filter(status="admitted").count() == 1
    tickets.send(CHG, "hold")
    world.run(rollout, seconds=600, step=5)

    assert set(rollout.steps.values_list("status", flat=True)) == {"queued"}
    assert not any(node["spec"].get("unschedulable") for node in world.fleet.list("nodes").items)


def test_what_goes_back_does_not_wait_for_a_ticket(world, tickets):
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    rollout = world.run(start(world, plan))
    tickets.send(CHG, "closed")
    rollout_actions.revert(rollout, by=world.operator)
    assert world.run(rollout).status == "reverted"


def test_a_persons_pause_outlives_a_release(world, tickets):
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    rollout = start(world, plan)
    rollout_actions.pause(rollout, by=world.operator)
    tickets.send(CHG, "hold")
    tickets.send(CHG, "release")
    assert Rollout.objects.get(pk=rollout.pk).status == "paused"


def test_a_reference_stays_once_its_rollout_began(world):
    plan = world.approved()
    references.enter(plan, CHG, by=world.operator)
    start(world, plan)
    with pytest.raises(WrongState):
        references.enter(plan, "CHG0000001", by=world.operator)


def test_rows_that_were_changed_past_setpoint_start_nothing(world, rule, tickets):
    plan = world.approved()
    Plan.objects.filter(pk=plan.pk).update(change_record=CHG)
    ChangeRecord.objects.bulk_create([ChangeRecord(reference=CHG)])
    assert "outside Setpoint" in refused(world, plan)

    references.enter(plan, CHG, by=world.operator)
    ChangeRecord.objects.filter(pk=CHG).update(state="release")
    assert "outside Setpoint" in refused(world, plan)

    tickets.send(CHG, "release")
    ChangeRecordRule.objects.update(is_required=False, must_release=False)
    assert "outside Setpoint" in refused(world, plan)

    row = ChangeRecordRule.objects.get()
    rulebook.change(row, by=world.admin, version=row.version, is_required=True)
    assert start(world, plan)


def test_break_glass_passes_what_a_change_record_lacks_and_no_hold(world, rule, tickets):
    plan = world.approved()
    assert plan_actions.obstacle_beside_approval(plan) == ""

    references.enter(plan, CHG, by=world.operator)
    tickets.send(CHG, "hold")
    plan.refresh_from_db()
    assert obstacles.stop_reason(plan) in plan_actions.obstacle_beside_approval(plan) != ""
