"""Decisions on a plan as the person saw it a moment ago, while it has moved on."""

from __future__ import annotations

import pytest

from common.errors import WrongState
from jobs.approvals import reviews, verdicts
from jobs.models import Plan
from jobs.rollouts import rollout_actions
from tests.jobs.conftest import World


def test_an_approval_is_not_taken_back_once_the_rollout_has_started(world: World):
    plan = world.approved()
    as_seen_before = Plan.objects.get(pk=plan.pk)
    rollout_actions.start(plan, by=world.operator)

    with pytest.raises(WrongState, match="before the start"):
        reviews.retract(as_seen_before, by=world.approver)

    assert verdicts.approval_state(Plan.objects.get(pk=plan.pk)).is_approved
