"""Races: two rollouts over the same nodes, two approvers, two starts. One wins, and every party is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.full.harness.client import Problem, at_once
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import Site

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("judged")]
NODES = ("race-1", "race-2", "race-3")


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., KwokFleet]) -> KwokFleet:
    return make_fleet("race", *NODES)


def test_of_many_starts_at_once_one_wins(site: Site, fleet: KwokFleet):
    plan = site.plan(site.pool(pool="race"), site.revision({"vm.swappiness": "11"}))
    site.approve(plan)

    answers = at_once(*[lambda: site.start(plan)] * 6)

    won = [a for a in answers if isinstance(a, str)]
    assert len(won) == 1, answers
    assert {a.status for a in answers if isinstance(a, Problem)} == {409}
    site.until(won[0], "succeeded")


def test_of_two_plans_for_the_same_nodes_started_at_once_one_wins(site: Site, fleet: KwokFleet):
    pool = site.pool(pool="race")
    plans = [site.plan(pool, site.revision({"vm.swappiness": value})) for value in ("21", "22")]
    for plan in plans:
        site.approve(plan)

    answers = at_once(*[lambda plan=plan: site.start(plan) for plan in plans])

    won, lost = sorted(answers, key=lambda a: isinstance(a, Problem))
    assert isinstance(won, str)
    assert isinstance(lost, Problem)
    assert lost.status == 409
    assert "works on some of these nodes" in str(lost)
    site.until(won, "succeeded")


def test_two_approvers_at_once_both_count_and_the_plan_is_approved_once(site: Site, fleet: KwokFleet):
    plan = site.plan(site.pool(pool="race"), site.revision({"vm.swappiness": "31"}))
    site.operator.post(f"plans/{plan['id']}/actions/request", {"comment": ""})
    path, body = f"plans/{plan['id']}/actions/approve", {"digest": plan["digest"]}

    answers = at_once(lambda: site.approver.post(path, body), lambda: site.second.post(path, body))

    assert not [a for a in answers if isinstance(a, Problem)], answers
    approved = site.operator.get(f"plans/{plan['id']}")
    assert approved["status"] == "approved"
    assert sorted(approved["approval"]["approved_by"]) == [site.approver.email, site.second.email]


def test_an_approval_and_a_rejection_at_once_never_leave_an_approved_plan(site: Site, fleet: KwokFleet):
    revision = site.revision({"vm.swappiness": "32"})
    for _ in range(4):
        plan = site.plan(site.pool(pool="race"), revision)
        site.operator.post(f"plans/{plan['id']}/actions/request", {"comment": ""})
        path = f"plans/{plan['id']}/actions/"
        body = {"digest": plan["digest"], "comment": "no"}

        at_once(
            lambda path=path, body=body: site.approver.post(path + "approve", body),
            lambda path=path, body=body: site.second.post(path + "reject", body),
        )

        assert site.operator.get(f"plans/{plan['id']}")["status"] == "rejected"
        with pytest.raises(Problem):
            site.start(plan)


def test_a_start_and_a_retraction_at_once_agree(site: Site, fleet: KwokFleet):
    """Either the approval was taken back and nothing starts, or it started and cannot be taken back."""
    revision = site.revision({"vm.swappiness": "33"})
    for _ in range(3):
        plan = site.plan(site.pool(pool="race"), revision, budget=1)
        site.approve(plan)

        started, retracted = at_once(
            lambda plan=plan: site.start(plan),
            lambda plan=plan: site.approver.post(f"plans/{plan['id']}/actions/retract"),
        )

        assert isinstance(started, Problem) != isinstance(retracted, Problem), (started, retracted)
        if isinstance(started, str):
            site.until(started, "succeeded")
            return
        assert site.operator.get(f"plans/{plan['id']}")["status"] == "review"
