"""Plans made by another version of Setpoint: their approvers saw what that version counted, which may be less."""

from __future__ import annotations

from datetime import timedelta

import pytest

from audit.models import Record
from common.clock import now
from common.errors import WrongState
from jobs.approvals import reviews, verdicts
from jobs.models import JUDGEMENT, Plan, Rollout
from jobs.planning import digests
from jobs.reports import plan_page
from jobs.rollouts import possible_actions, rollout_actions
from tests import marks
from tests.factories import TokenClient
from tests.jobs.conftest import World, given_again


def of_another_version(plan: Plan, judgement: int = JUDGEMENT - 1) -> Plan:
    """Make the plan as it is in the database after an upgrade: its digest and its approvals are those of then."""
    plan.judgement = judgement
    digest = digests.plan_digest(plan)
    marks.put(Plan.objects.filter(pk=plan.pk), judgement=judgement, digest=digest)
    marks.put(Rollout.objects.filter(plan=plan), digest=digest)
    given_again(plan, digest=digest)
    plan.refresh_from_db()
    return plan


@pytest.mark.parametrize("judgement", [JUDGEMENT - 1, JUDGEMENT + 1])
def test_what_was_approved_then_does_not_start_now(world: World, judgement: int) -> None:
    plan = of_another_version(world.approved(), judgement)
    assert digests.is_as_approved(plan)
    assert verdicts.approval_state(plan).is_approved

    with pytest.raises(WrongState, match="version"):
        rollout_actions.start(plan, by=world.operator)

    assert not Rollout.objects.exists()


def test_page_and_rest_offer_neither_a_verdict_nor_a_start(world: World) -> None:
    plan = world.plan()
    reviews.request(plan, by=world.operator)
    of_another_version(plan)

    actions = TokenClient(world.approver, scope="approve").get(f"/api/v1/plans/{plan.pk}").json()["actions"]
    answer = TokenClient(world.approver, scope="approve").post(
        f"/api/v1/plans/{plan.pk}/actions/approve", {"digest": plan.digest}
    )

    assert [verb for verb in ("request", "approve", "start") if actions[verb]] == []
    assert (answer.status_code, "version" in answer.json()["detail"]) == (409, True)
    assert "version" in plan_page.plan_page(plan, world.approver)["late"]


def test_within_a_sweep_it_is_expired_and_the_record_says_why(world: World) -> None:
    plan = of_another_version(world.approved())

    assert reviews.expire() == 1

    plan.refresh_from_db()
    assert plan.status == Plan.Status.EXPIRED
    assert "version" in Record.objects.get(action="plan.expire").message


def test_a_rollout_scheduled_then_does_not_begin_now(world: World) -> None:
    rollout = rollout_actions.start(world.approved(), by=world.operator, at=now() + timedelta(minutes=1))
    of_another_version(rollout.plan)

    rollout = world.run(rollout, seconds=120)

    assert (rollout.status, "version" in rollout.waiting_for) == ("queued", True)
    assert "abort" in {row.verb for row in possible_actions.all_actions(rollout) if row.is_possible}


def test_one_that_had_begun_is_carried_out_as_approved(world: World) -> None:
    """Half a plan is worse than a plan that was judged otherwise."""
    rollout = world.started()
    world.slice(rollout)
    assert rollout.status == "running"
    of_another_version(rollout.plan)

    assert world.run(rollout).status == "succeeded"


def test_the_digest_covers_it(world: World) -> None:
    plan = world.approved()

    Plan.objects.filter(pk=plan.pk).update(judgement=JUDGEMENT + 1)
    plan.refresh_from_db()

    assert not digests.is_as_approved(plan)
