"""Verdicts and starts at the same moment."""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from audit.models import Record
from common.errors import WrongState
from jobs.approvals import reviews
from jobs.models import Rollout
from jobs.planning import digests
from jobs.rollouts import rollout_actions
from tests.jobs.approvals.test_approvals import approve, fresh
from tests.jobs.rows import change_sets_of

REBOOT = {"cmdline.iommu": "pt"}


def at_once(*acts):  # type: ignore[no-untyped-def]
    """Run each in a thread of its own, all let go at one moment; the refusals."""
    gate, refusals = threading.Barrier(len(acts)), []

    def run(act):  # type: ignore[no-untyped-def]
        try:
            gate.wait(10)
            act()
        except Exception as error:
            refusals.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "one still waits for another"
    return refusals


@pytest.mark.django_db(transaction=True)
def test_two_approvers_at_once_count_each_other(make_world):
    world = make_world(environment="production")
    plan = reviews.request(world.plan(world.revision(REBOOT)), by=world.operator)

    refusals = at_once(*(lambda by=by: approve(fresh(plan), by) for by in (world.approver, world.second)))

    assert refusals == []
    assert fresh(plan).status == "approved"
    assert Record.objects.filter(action="plan.approve").count() == 2


@pytest.mark.django_db(transaction=True)
def test_an_approval_and_a_rejection_at_once_end_the_plan(world):
    plan = reviews.request(world.plan(), by=world.operator)

    refusals = at_once(
        lambda: approve(fresh(plan), world.approver),
        lambda: reviews.reject(fresh(plan), by=world.second, digest=plan.digest, comment="no"),
    )

    assert [type(r) for r in refusals] in ([], [WrongState]), "an approval of a plan that was just rejected"
    assert fresh(plan).status == "rejected"


@pytest.mark.django_db(transaction=True)
def test_a_plan_started_twice_at_once_starts_once(world):
    plan = world.approved()

    refusals = at_once(*[lambda: rollout_actions.start(fresh(plan), by=world.operator)] * 3)

    assert [type(r) for r in refusals] == [WrongState, WrongState]
    assert Rollout.objects.count() == 1


def test_a_digest_names_its_change_sets(world, plan):
    assert digests.plan_digest(plan) == plan.digest
    assert len(change_sets_of(plan)) == 1
