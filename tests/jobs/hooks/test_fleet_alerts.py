"""The alert of a fleet run that only a person can continue: of the cluster that keeps it, and of no other."""

from __future__ import annotations

import pytest

from accounts.models import RoleBinding
from jobs.approvals import reviews
from jobs.hooks.alert_rules import stuck
from jobs.models import FleetRun, Rollout
from jobs.rollouts import fleet_runs, rollout_actions
from tests.jobs.fleets import SOAK, Fleet


@pytest.fixture
def fleet(make_world) -> Fleet:
    return Fleet(make_world)


@pytest.fixture
def soaking(fleet) -> Fleet:
    fleet.approve()
    fleet.start()
    fleet.finish(1)
    fleet.look()
    return fleet


def sentences(fleet: Fleet) -> list[list[str]]:
    """Return them by cluster, in the order of the rings."""
    looks = [stuck(world.cluster.pk, 0.0) for world in fleet.worlds]
    assert not any(look.is_blind for look in looks)
    return [[condition.sentence for condition in look.conditions] for look in looks]


def test_what_continues_by_itself_raises_nothing_from_the_start_to_the_end(fleet):
    assert sentences(fleet) == [[], []]  # a draft
    fleet.approve(1)
    fleet.start()
    assert sentences(fleet) == [[], []]  # in progress
    fleet.finish(1)
    fleet.look()
    assert sentences(fleet) == [[], []]  # soaking
    fleet.wait(2 * SOAK)
    assert sentences(fleet) == [[], []]  # ring 2 waits for its approval, of which approvers are notified
    fleet.approve(2)
    fleet.look()
    fleet.finish(2)
    assert fleet.look().status == "succeeded"
    assert sentences(fleet) == [[], []]


@pytest.mark.parametrize("status", ["failed", "stopped", "reverted"])
def test_a_failed_rollout_is_an_alert_of_its_cluster_until_it_is_left_out(soaking, status):
    Rollout.objects.filter(pk=soaking.rollout(1).pk).update(status=status)

    (first,), second = sentences(soaking)

    assert str(soaking.rollout(1)) in first
    assert second == []
    if status != "stopped":
        fleet_runs.leave_out(soaking.run, soaking.plan(1), by=soaking.operator, reason="another way")
        assert sentences(soaking) == [[], []]


def test_a_rollout_that_is_being_reverted_or_aborted_is_one_too(soaking):
    rollout_actions.revert(soaking.rollout(1), by=soaking.operator)

    assert [len(rows) for rows in sentences(soaking)] == [1, 0]


def test_a_plan_that_will_never_start_is_one_of_its_own_cluster_once_its_ring_is_next(fleet):
    fleet.approve(1)
    fleet.start()
    reviews.close(fleet.plan(2), by=fleet.operator, comment="not like this")
    assert sentences(fleet) == [[], []]  # ring 1 is still in progress
    fleet.finish(1)

    first, (second,) = sentences(fleet)

    assert first == []
    assert str(fleet.plans[1]) in second


def test_nodes_that_are_not_well_are_one_only_after_the_soak_and_of_their_cluster(soaking):
    soaking.first.sim.kernel("n1").write("/proc/sys/vm/swappiness", "33")
    soaking.first.tick(90)
    assert sentences(soaking) == [[], []]
    soaking.wait(2 * SOAK)

    (first,), second = sentences(soaking)
    assert "1 of its nodes" in first
    assert second == []

    fleet_runs.open_ring(soaking.run, by=soaking.operator, reason="a test node")
    assert sentences(soaking) == [[], []]


@pytest.mark.parametrize("how", ["role", "account"])
def test_a_starter_who_may_start_nothing_any_more_is_one_where_a_plan_waits_for_them(soaking, how):
    if how == "role":
        RoleBinding.objects.filter(user=soaking.operator).delete()
    else:
        FleetRun.objects.update(started_by=None)
    soaking.wait(2 * SOAK)

    first, (second,) = sentences(soaking)

    assert first == []
    assert "can no longer start" in second


@pytest.mark.parametrize("verb", ["hold", "cancel"])
def test_a_run_that_a_person_held_or_cancelled_raises_nothing(soaking, verb):
    Rollout.objects.filter(pk=soaking.rollout(1).pk).update(status="failed")
    getattr(fleet_runs, verb)(soaking.run, by=soaking.operator, reason="we know")

    assert sentences(soaking) == [[], []]


def test_a_run_costs_a_few_queries_and_a_cluster_without_one_costs_one(soaking, django_assert_max_num_queries):
    with django_assert_max_num_queries(4):
        stuck(soaking.first.cluster.pk, 0.0)
    FleetRun.objects.update(status="succeeded")
    with django_assert_max_num_queries(1):
        stuck(soaking.first.cluster.pk, 0.0)
