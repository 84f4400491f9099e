"""Changes requested of a plan, and reminders of plans that wait."""

from __future__ import annotations

import pytest

from accounts.models import User
from audit.models import Record
from common.errors import Invalid, NotAllowed, WrongState
from jobs.approvals import reviews, verdicts
from jobs.models import Plan
from jobs.rollouts import rollout_actions
from tests import marks
from tests.factories import TokenClient
from tests.jobs.approvals.test_approval_rules import approve, fresh, review

REBOOT = {"cmdline.iommu": "pt"}


# ── changes requested ─────────────────────────────────────────────────────────────────────────────────────────────────


def back(plan: Plan, by: User, comment: str = "Fewer at once, please") -> Plan:
    return reviews.request_changes(plan, by=by, digest=plan.digest, comment=comment)


def test_requested_changes_send_a_plan_back_to_its_author_and_end_the_round(make_world):
    world = make_world(environment="production")
    plan = reviews.request(world.plan(world.revision(REBOOT)), by=world.operator)
    approve(plan, world.approver)
    plan = back(fresh(plan), world.second)

    assert plan.status == "changes"
    assert verdicts.approval_state(plan).changes_by == (world.second,)
    for act in (
        lambda: approve(fresh(plan), world.approver),
        lambda: rollout_actions.start(fresh(plan), by=world.operator),
        lambda: reviews.retract(fresh(plan), by=world.approver),
    ):
        with pytest.raises(WrongState):
            act()

    with pytest.raises(Invalid):
        reviews.request(fresh(plan), by=world.operator, message=" ")
    plan = reviews.request(fresh(plan), by=world.operator, message="It is one at a time already.")
    there = verdicts.approval_state(plan)
    assert (plan.status, plan.round, there.missing, there.approved_by, there.changes_by) == ("review", 2, 2, (), ())
    approve(fresh(plan), world.approver)
    assert approve(fresh(plan), world.second).status == "approved"


def test_an_approved_plan_can_be_sent_back_before_it_starts(world):
    assert back(world.approved(), world.second).status == "changes"


@pytest.mark.parametrize("comment", ["", " \n", "x" * 4001])
def test_requested_changes_say_which(world, comment):
    plan = review(world)
    with pytest.raises(Invalid) as refusal:
        back(plan, world.approver, comment)
    assert set(refusal.value.fields) == {"comment"}
    assert fresh(plan).status == "review"


def test_who_may_not_approve_may_not_request_changes(world):
    plan = review(world)
    for who in (world.operator, world.author, world.admin):
        with pytest.raises(NotAllowed):
            back(plan, who)


def test_a_new_plan_takes_the_place_of_the_one_that_was_sent_back(world):
    other = back(review(world), world.approver)
    marks.put(Plan.objects.filter(pk=other.pk), created_by=world.author, requested_by=world.author)
    old = back(review(world), world.approver)

    new = reviews.request(world.plan(batch="1"), by=world.operator)

    old, other = fresh(old), fresh(other)
    assert (old.status, old.superseded_by_id) == ("withdrawn", new.pk)
    assert other.status == "changes", "another person's is theirs to answer"
    assert Record.objects.get(action="plan.supersede").target == f"plan:{old.pk}"


def test_changes_are_requested_over_rest_with_the_approve_scope_only(world):
    plan = review(world)
    path = f"/api/v1/plans/{plan.pk}/actions/request-changes"
    sent = {"digest": plan.digest, "comment": "Smaller batches"}
    assert TokenClient(world.approver, scopes=["read", "plan", "apply"]).post(path, sent).status_code == 403
    answer = TokenClient(world.approver).post(path, sent)
    assert (answer.status_code, answer.json()["status"]) == (202, "changes")
    assert answer.json()["approval"]["changes_by"] == [str(world.approver)]
    assert answer.json()["verdicts"][0]["comment"] == "Smaller batches"


# ── reminders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_that_waits_for_a_day_is_remembered_once_a_day_and_before_it_ends(world):
    plan = review(world)
    world.clock.forward(hours=23)
    assert reviews.remind() == 0
    world.clock.forward(hours=1)
    assert (reviews.remind(), reviews.remind()) == (1, 0)
    world.clock.forward(hours=24)
    assert (reviews.remind(), reviews.remind()) == (1, 0)
    world.clock.forward(hours=13)
    assert (reviews.remind(), reviews.remind()) == (1, 0), "11 hours are left"
    assert [r.target for r in Record.objects.filter(action="plan.remind")] == [f"plan:{plan.pk}"] * 3


def test_what_does_not_wait_is_not_remembered(world):
    world.plan()
    plan = review(world)
    approve(plan, world.approver)
    world.clock.forward(hours=30)
    assert reviews.remind() == 0
