"""Fleet runs: nothing of a ring starts before every ring ahead of it has finished, soaked and is healthy."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import QuerySet

from accounts.models import RoleBinding, User
from audit.models import Record
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, NotAllowed, WrongState
from jobs.approvals import reviews, rings
from jobs.models import FleetRun, Plan, Rollout
from jobs.rollouts import fleet_runs, glass_start, rollout_actions
from jobs.rollouts.fleet_runs import WantedRing
from tests.jobs.fleets import SOAK, Fleet, wanted


@pytest.fixture
def fleet(make_world) -> Fleet:
    return Fleet(make_world)


@pytest.fixture
def soaking(fleet) -> Fleet:
    """Both approved, the run started, the first ring finished."""
    fleet.approve()
    fleet.start()
    fleet.finish(1)
    fleet.look()
    return fleet


def test_the_second_cluster_follows_by_itself_once_the_first_has_finished_and_soaked(fleet):
    fleet.approve()
    fleet.start()
    assert fleet.rollout(1) is not None
    assert fleet.rollout(2) is None

    fleet.finish(1)
    for _ in range(3):
        assert "soaks until" in fleet.wait(SOAK / 4).waiting_for
        assert fleet.rollout(2) is None
        assert fleet.second.value("n1") == "60"

    fleet.wait(SOAK)
    rollout = fleet.rollout(2)
    assert rollout is not None
    assert rollout.started_by == fleet.operator
    fleet.finish(2)
    assert fleet.second.value("n1") == fleet.first.value("n1") == "10"
    assert fleet.look().status == "succeeded"
    record = Record.objects.get(action="rollout.start", target=f"rollout:{rollout.pk}")
    assert record.after["fleet_run"] == str(fleet.run)


def test_a_plan_of_a_later_ring_cannot_be_started_by_hand_and_says_what_it_waits_for(fleet):
    fleet.approve()
    with pytest.raises(WrongState, match="has not been started"):
        rollout_actions.start(fleet.plan(1), by=fleet.operator)
    fleet.start()
    with pytest.raises(WrongState, match=r"Waits for ring 1 .*R-\d+ is"):
        rollout_actions.start(fleet.plan(2), by=fleet.operator)
    fleet.finish(1)
    with pytest.raises(WrongState, match="soaks until"):
        rollout_actions.start(fleet.plan(2), by=fleet.operator)


def test_a_ring_waits_for_approvals_of_its_own(soaking_without_second):
    fleet = soaking_without_second
    assert "has not started" in fleet.wait(2 * SOAK).waiting_for
    assert fleet.rollout(2) is None
    fleet.approve(2)
    fleet.look()
    assert fleet.rollout(2) is not None


@pytest.fixture
def soaking_without_second(fleet) -> Fleet:
    fleet.approve(1)
    fleet.start()
    fleet.finish(1)
    return fleet


@pytest.mark.parametrize("verb", ["fail", "revert", "abort"])
def test_what_goes_wrong_in_a_ring_keeps_the_next_closed_until_it_is_left_out_with_a_reason(fleet, verb):
    fleet.approve()
    fleet.start()
    rollout = fleet.rollout(1)
    if verb == "abort":
        rollout_actions.abort(rollout, by=fleet.operator)
    else:
        fleet.finish(1)
        rollout.refresh_from_db()
        if verb == "revert":
            rollout_actions.revert(rollout, by=fleet.operator)
        else:
            Rollout.objects.filter(pk=rollout.pk).update(status="failed")
    fleet.wait(10 * SOAK)
    assert fleet.rollout(2) is None
    assert "R-1" in fleet.run.waiting_for

    with pytest.raises(Invalid) as refused:
        fleet_runs.leave_out(fleet.run, fleet.plan(1), by=fleet.operator, reason=" ")
    assert "reason" in refused.value.fields
    if verb == "revert":
        fleet.finish(1)
    fleet_runs.leave_out(fleet.run, fleet.plan(1), by=fleet.operator, reason="atlas is retired")
    fleet.look()
    assert fleet.rollout(2) is not None
    assert Record.objects.filter(action="fleet-run.leave-out", message="atlas is retired").exists()


def test_a_ring_that_is_reverted_later_holds_the_steps_of_those_behind_it(soaking):
    fleet = soaking
    fleet.second.cluster.budget = 1
    fleet.wait(2 * SOAK)
    second = fleet.rollout(2)
    rollout_actions.revert(fleet.rollout(1), by=fleet.operator)
    fleet.second.run(second, seconds=300)
    assert fleet.second.value("n1") == fleet.second.value("n2") == "60"
    assert "Held by" in second.waiting_for


def test_drift_and_lost_nodes_of_a_finished_ring_keep_the_next_closed_after_its_soak(soaking):
    fleet = soaking
    fleet.first.sim.kernel("n1").write("/proc/sys/vm/swappiness", "33")
    fleet.first.tick(90)
    waiting = fleet.wait(2 * SOAK).waiting_for
    assert "1 of its nodes" in waiting
    assert fleet.rollout(2) is None

    fleet.first.sim.kernel("n1").write("/proc/sys/vm/swappiness", "10")
    fleet.first.tick(90)
    fleet.wait(1)
    assert fleet.rollout(2) is not None


def test_a_cluster_that_is_not_read_counts_as_not_healthy(soaking):
    fleet = soaking
    for world in fleet.worlds:
        world.tick(SOAK * 60)
    Cluster.objects.filter(pk=fleet.first.cluster.pk).update(reach="unreachable")
    fleet_runs.advance(fleet.run.pk)
    assert fleet.rollout(2) is None
    fleet.run.refresh_from_db()
    assert "unknown" in fleet.run.waiting_for


def test_a_person_opens_the_next_ring_early_only_once_the_one_before_has_finished(fleet):
    fleet.approve()
    fleet.start()
    with pytest.raises(WrongState, match="R-1"):
        fleet_runs.open_ring(fleet.run, by=fleet.operator, reason="in a hurry")
    fleet.finish(1)
    fleet_runs.open_ring(fleet.run, by=fleet.operator, reason="in a hurry")
    fleet.look()
    assert fleet.rollout(2) is not None
    with pytest.raises(WrongState):
        fleet_runs.open_ring(fleet.run, by=fleet.operator, reason="again")


def test_a_plan_that_is_added_to_a_ring_that_was_not_waited_for_is_waited_for(fleet):
    fleet.approve(1)
    fleet.start()
    fleet.finish(1)
    fleet_runs.open_ring(fleet.run, by=fleet.operator, reason="in a hurry")
    fleet.look()
    third = fleet.first.plan(fleet.first.revision({"vm.swappiness": "20"}), canary=0, batch="9")
    Plan.objects.filter(pk=fleet.plans[0].pk).update(ring_left="replaced")
    fleet_runs.add(fleet.run, third, ring=1, by=fleet.operator)
    assert FleetRun.objects.get().waived == 0


def test_a_held_run_starts_nothing_and_its_rollouts_go_no_further(fleet):
    fleet.approve()
    fleet.start()
    fleet_runs.hold(fleet.run, by=fleet.operator, reason="a pager rang")
    first = fleet.rollout(1)
    fleet.first.run(first, seconds=300)
    assert fleet.first.value("n1") == "60"
    assert "a pager rang" in first.waiting_for
    fleet_runs.release(fleet.run, by=fleet.first.author)
    assert fleet.finish(1).status == "succeeded"
    fleet.run.refresh_from_db()
    assert fleet.run.started_by == fleet.first.author


def test_cancelling_withdraws_what_has_not_started_and_lets_rollouts_finish(fleet):
    fleet.approve()
    fleet.start()
    fleet_runs.cancel(fleet.run, by=fleet.operator, reason="not now")
    assert fleet.plan(2).status == "withdrawn"
    assert fleet.finish(1).status == "succeeded"
    assert fleet.look().status == "cancelled"


def test_a_run_starts_nothing_in_the_name_of_somebody_who_lost_the_role(soaking):
    fleet = soaking
    RoleBinding.objects.filter(user=fleet.operator).delete()
    fleet.wait(2 * SOAK)
    assert fleet.rollout(2) is None
    assert "role operator" in fleet.run.waiting_for
    fleet_runs.hold(fleet.run, by=fleet.first.author, reason="another takes over")
    fleet_runs.release(fleet.run, by=fleet.first.author)
    fleet.look()
    assert fleet.rollout(2).started_by == fleet.first.author


def test_a_run_whose_starter_is_gone_waits_for_another(soaking):
    fleet = soaking
    FleetRun.objects.update(started_by=None)
    fleet.wait(2 * SOAK)
    assert "is gone" in fleet.run.waiting_for
    assert fleet.rollout(2) is None


def test_two_looks_at_once_start_a_plan_once(fleet, monkeypatch):
    fleet.approve()
    fleet_runs.start(fleet.run, by=fleet.operator)
    true_start, rounds = rollout_actions.start, []

    def slow(plan, *, by, at=None):
        if not rounds:
            rounds.append(1)
            fleet_runs.advance(fleet.run.pk)  # the other process is faster
        return true_start(plan, by=by, at=at)

    monkeypatch.setattr(rollout_actions, "start", slow)
    fleet_runs.advance(fleet.run.pk)
    assert Rollout.objects.filter(plan=fleet.plans[0]).count() == 1
    fleet.finish(1)


def test_a_quiet_look_writes_nothing(soaking, django_assert_max_num_queries):
    soaking.look()
    version = soaking.run.version
    with django_assert_max_num_queries(4):
        fleet_runs.advance(soaking.run.pk)
    soaking.run.refresh_from_db()
    assert soaking.run.version == version


def test_plans_in_no_run_cost_no_query(world, django_assert_num_queries):
    plan = Plan.objects.get(pk=world.plan().pk)
    with django_assert_num_queries(0):
        assert rings.reason_not_to_start(plan) == rings.hold_reason(plan) == ""


class TestMaking:
    def bad(self, fleet_plans, by, **fields):
        given = {"name": "x", "wanted": wanted(fleet_plans)} | fields
        with pytest.raises(Invalid) as refused:
            fleet_runs.create(by=by, **given)
        return refused.value.fields

    @pytest.fixture
    def pair(self, make_world):
        first = make_world(nodes=1)
        second = make_world(nodes=1, name="borea", beside=first)
        return first, second

    @pytest.fixture
    def plans(self, pair):
        revision = pair[0].revision()
        return [world.plan(revision) for world in pair]

    def test_bad_input_names_its_field(self, pair, plans):
        by = pair[0].operator
        assert "name" in self.bad(plans, by, name="  ")
        assert "name" in self.bad(plans, by, name="x" * 81)
        assert "rings" in self.bad(plans, by, wanted=[])
        assert "rings" in self.bad(plans, by, wanted=[WantedRing("a", 0, [])])
        assert "rings" in self.bad(plans, by, wanted=[WantedRing("a", -1, plans[:1]), WantedRing("b", 0, plans[1:])])
        assert "rings" in self.bad(plans, by, wanted=[WantedRing("a", 10**6, plans[:1]), WantedRing("b", 0, plans[1:])])
        assert "rings" in self.bad(plans, by, wanted=[WantedRing("a", 0, plans[:1]), WantedRing("b", 5, plans[1:])])
        assert "rings" in self.bad(plans, by, wanted=[WantedRing("a", 0, plans[:1]), WantedRing("b", 0, plans[:1])])
        assert not FleetRun.objects.exists()

    def test_only_drafts_in_no_other_run_are_taken(self, pair, plans):
        reviews.request(plans[0], by=pair[0].operator)
        assert "only drafts" in str(self.bad(plans, pair[0].operator))
        fleet_runs.create(by=pair[0].operator, name="one", wanted=[WantedRing("a", 0, plans[1:])])
        assert "in a fleet run already" in str(self.bad([Plan.objects.get(pk=plans[1].pk)], pair[0].operator))

    def test_one_pool_has_one_plan(self, pair, plans):
        other = pair[0].plan(pair[0].revision({"vm.swappiness": "20"}))
        assert "one pool" in str(self.bad([plans[0], other], pair[0].operator))

    def test_a_plan_that_would_expire_before_its_ring_opens_is_refused(self, pair, plans):
        plans[1].put(expires_at=now() + timedelta(minutes=SOAK - 1))
        assert "expire" in str(self.bad(plans, pair[0].operator))

    def test_it_takes_the_role_in_every_cluster(self, pair, plans):
        some = User.objects.create(username="some", email="some@example.com")
        RoleBinding.objects.create(user=some, role="operator", scope=f"cluster:{pair[0].cluster.pk}")
        with pytest.raises(NotAllowed):
            fleet_runs.create(by=some, name="x", wanted=wanted(plans))
        run = fleet_runs.create(by=pair[0].operator, name="x", wanted=wanted(plans))
        with pytest.raises(NotAllowed, match="each of its clusters"):
            fleet_runs.start(run, by=some)
        fleet_runs.start(run, by=pair[0].operator)
        fleet_runs.hold(run, by=some, reason="it burns")  # to stop it, one cluster is enough
        for stranger in (pair[0].approver, pair[0].admin):
            with pytest.raises(NotAllowed):
                fleet_runs.release(run, by=stranger)

    def test_a_plan_is_added_to_a_ring_that_is_not_behind(self, pair, plans):
        by = pair[0].operator
        run = fleet_runs.create(by=by, name="x", wanted=[WantedRing("a", 5, plans[:1]), WantedRing("b", 0, plans[1:])])
        more = pair[0].plan(pair[0].revision({"vm.swappiness": "20"}))
        with pytest.raises(Invalid, match="cannot be added"):
            fleet_runs.add(run, more, ring=2, by=by)  # its pool has one
        fleet_runs.leave_out(run, plans[0], by=by, reason="another in its place")
        for ring in (0, 3):
            with pytest.raises(Invalid):
                fleet_runs.add(run, more, ring=ring, by=by)
        fleet_runs.add(run, more, ring=1, by=by)
        assert [len(ring.members) for ring in rings.rings_of(run)] == [2, 1]
        assert Plan.objects.get(pk=plans[0].pk).status == "withdrawn"

    def test_a_plan_of_another_run_is_not_left_out(self, pair, plans):
        by = pair[0].operator
        run = fleet_runs.create(by=by, name="one", wanted=[WantedRing("a", 0, plans[:1])])
        fleet_runs.create(by=by, name="two", wanted=[WantedRing("a", 0, plans[1:])])
        with pytest.raises(Invalid):
            fleet_runs.leave_out(run, plans[1], by=by, reason="x")

    def test_what_is_over_takes_no_verb(self, pair, plans):
        by = pair[0].operator
        run = fleet_runs.create(by=by, name="x", wanted=wanted(plans))
        fleet_runs.cancel(run, by=by, reason="x")
        for refused in (
            lambda: fleet_runs.start(run, by=by),
            lambda: fleet_runs.hold(run, by=by, reason="x"),
            lambda: fleet_runs.release(run, by=by),
            lambda: fleet_runs.cancel(run, by=by, reason="x"),
            lambda: fleet_runs.open_ring(run, by=by, reason="x"),
            lambda: fleet_runs.leave_out(run, plans[0], by=by, reason="x"),
        ):
            with pytest.raises(WrongState):
                refused()


@pytest.mark.parametrize("how", ["start", "break glass"])
def test_every_start_locks_the_run_before_its_plan(fleet, how, monkeypatch, settings):
    """A hold then comes before the start and counts, or after it; and two of them never wait for each other."""
    order: list[str] = []
    true = QuerySet.select_for_update

    def noted(rows, *arguments, **options):
        order.append(rows.model.__name__)
        return true(rows, *arguments, **options)

    settings.SETPOINT_BREAK_GLASS_CLASS = "drain"
    if how == "start":
        fleet.approve(1)
    else:
        reviews.request(fleet.plan(1), by=fleet.operator)
        RoleBinding.objects.create(user=fleet.operator, role="break-glass", scope="*")
    fleet_runs.start(fleet.run, by=fleet.operator)
    plan, by = fleet.plan(1), User.objects.get(pk=fleet.operator.pk)
    monkeypatch.setattr(QuerySet, "select_for_update", noted)
    if how == "start":
        rollout = rollout_actions.start(plan, by=by)
    else:
        rollout = glass_start.start(
            plan, by=by, digest=plan.digest, reason="a fire", confirmation=str(plan), proved_at=now()
        )

    assert fleet.rollout(1) == rollout
    assert [name for name in order if name in ("FleetRun", "Plan")][:2] == ["FleetRun", "Plan"]
