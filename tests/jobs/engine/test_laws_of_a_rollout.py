"""Laws 10 to 14 of the engine: controls, freshness, one master, skew, and what failure leaves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.db import transaction

from clusters.models import Cluster
from common.errors import Invalid, NotAllowed, Refusal, WrongState
from contract.nodetuning import Status
from jobs.engine import reconcile
from jobs.models import Plan, Rollout, Slot
from jobs.rollouts import freezes, possible_actions, rollout_actions

REBOOT = {"cmdline.iommu": "pt"}
VERBS = ("pause", "resume", "go-on", "abort", "retry-failed", "skip", "revert")


# ── law 10: controls ──────────────────────────────────────────────────────────────────────────────────────────────────


def _queued(world):
    return world.started()


def _running(world):
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "succeeded")
    return rollout


def _paused(world):
    rollout = _running(world)
    rollout_actions.pause(rollout, by=world.operator)
    world.run(rollout)
    return rollout


def _stopped(world):
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n2", times=1)
    rollout = world.run(world.started(world.plan(canary=1, batch="1", order="name")))
    assert rollout.status == "stopped"
    return rollout


def _failed(world):
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n3", times=1)
    return world.run(world.started(world.plan(canary=0, batch="3", order="name", max_failures=1)))


def _held(world):
    rollout = world.started(world.plan(canary=0, batch="3", order="name"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.tick(10)
    world.run(rollout, seconds=20)
    assert rollout.steps.get(node_name="n2").status == "held"
    return rollout


def _succeeded(world):
    return world.run(world.started())


def _cancelled(world):
    rollout = _running(world)
    rollout_actions.abort(rollout, by=world.operator)
    return world.run(rollout)


def _reverted(world):
    rollout = _succeeded(world)
    rollout_actions.revert(rollout, by=world.operator)
    return world.run(rollout)


def _aborting(world):
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(world.plan(canary=1, order="name"))
    world.until(rollout, "verifying")
    rollout_actions.abort(rollout, by=world.operator)
    return rollout


STATES = {
    name.__name__.removeprefix("_"): name
    for name in (_queued, _running, _paused, _stopped, _failed, _held, _succeeded, _cancelled, _reverted, _aborting)
}


def _do(world, rollout: Rollout, verb: str) -> None:
    if verb == "skip":
        steps = rollout.steps.filter(status__in=("queued", "failed", "held"))
        step = steps.first() or rollout.steps.first()
        rollout_actions.skip(rollout, step, by=world.operator)
    else:
        getattr(rollout_actions, verb.replace("-", "_"))(rollout, by=world.operator)


@pytest.mark.parametrize("state", STATES)
def test_a_verb_works_where_it_is_offered_and_only_there(world, state):
    """Each verb is tried in the same state: what it wrote is taken back."""
    pk = STATES[state](world).pk
    for verb in VERBS:
        rollout = Rollout.objects.get(pk=pk)
        offered = {a.verb: a for a in possible_actions.all_actions(rollout)}[verb]
        before = rollout.status
        with transaction.atomic():
            if offered.is_possible:
                _do(world, rollout, verb)
            else:
                with pytest.raises(WrongState) as refused:
                    _do(world, rollout, verb)
                assert str(refused.value) == offered.reason, verb
                assert str(refused.value).startswith("Not possible: "), verb
                rollout.refresh_from_db()
                assert rollout.status == before, verb
            transaction.set_rollback(True)


@pytest.mark.parametrize("verb", VERBS)
def test_a_viewer_can_do_nothing_to_a_rollout(world, verb):
    rollout = _running(world)
    world.operator.bindings.update(role="viewer")
    world.operator = type(world.operator).objects.get(pk=world.operator.pk)

    with pytest.raises(NotAllowed, match="operator"):
        _do(world, rollout, verb)


def test_pause_starts_nothing_new_and_resume_goes_on(world):
    rollout = _paused(world)
    done = rollout.steps.filter(status="succeeded").count()
    world.tick(60)
    world.slice(rollout)
    assert rollout.steps.filter(status="succeeded").count() == done < 3

    rollout_actions.resume(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.status == "succeeded"


def test_retry_failed_runs_only_the_failed_nodes_again(world):
    rollout = _stopped(world)
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert {s.node_name: s.attempt for s in rollout.steps.all()} == {"n1": 1, "n2": 2, "n3": 1}
    assert world.value("n2") == "10"


def test_skip_leaves_the_node_and_goes_on(world):
    rollout = _stopped(world)
    rollout_actions.skip(rollout, rollout.steps.get(node_name="n2"), by=world.operator)
    world.run(rollout)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.value("n2") == "60"
    assert world.value("n3") == "10"


def test_abort_and_revert_puts_back_what_was_in_flight(make_world):
    world = make_world(nodes=2)
    world.sim.agents.restart("n1", "slow")
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "verifying")

    rollout_actions.abort(rollout, by=world.operator, in_flight="revert")
    world.run(rollout, seconds=900, step=5)

    assert rollout.status == "cancelled"
    assert rollout.steps.get(node_name="n1").status == "reverted"
    assert rollout.steps.get(node_name="n2").status == "skipped"
    assert world.value("n1") == "60"


@pytest.mark.parametrize("on_failure", ["revert-node", "revert-all"])
def test_what_to_do_on_failure_is_part_of_the_strategy(world, on_failure):
    plan = world.plan(canary=1, batch="1", order="name", on_failure=on_failure, step_deadline_seconds=30)
    rollout = world.started(plan)
    world.until(rollout, "succeeded")
    world.sim.agents.restart("n2", "hanging")
    world.until(rollout, "verifying", node="n2")
    # It misses the deadline of 30 s, and is well again when it is to be reverted.
    world.sim.after(40, lambda: world.sim.agents.restart("n2", "normal"))

    world.run(rollout, seconds=300)

    n1, n2 = (rollout.steps.get(node_name=n).status for n in ("n1", "n2"))
    assert n2 == "reverted"
    assert n1 == ("succeeded" if on_failure == "revert-node" else "reverted")
    assert world.value("n2") == "60"


def test_a_rollout_starts_at_its_time(world, clock):
    rollout = rollout_actions.start(world.approved(), by=world.operator, at=clock() + timedelta(minutes=10))
    world.tick(300)
    world.slice(rollout)
    assert rollout.status == "queued"

    world.tick(301)
    world.run(rollout)
    assert rollout.status == "succeeded"


def test_a_rollout_cannot_start_in_the_past(world, clock):
    with pytest.raises(Invalid, match="past"):
        rollout_actions.start(world.approved(), by=world.operator, at=clock() - timedelta(hours=1))


def test_a_revert_is_refused_when_somebody_wrote_since(world):
    first = world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}))))
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "10"}))))

    with pytest.raises(WrongState, match="later rollout"):
        rollout_actions.revert(first, by=world.operator)


def test_a_revert_is_refused_when_it_is_too_late(world):
    rollout = _succeeded(world)
    world.tick(settings.SETPOINT_REVERT_DAYS * 86_400 + 60)
    with pytest.raises(WrongState, match="days ago"):
        rollout_actions.revert(rollout, by=world.operator)
    [offered] = [action for action in possible_actions.all_actions(rollout) if action.verb == "revert"]
    assert not offered.is_possible


def test_a_revert_passes_a_freeze_only_with_a_reason(world):
    rollout = _succeeded(world)
    freezes.freeze(cluster=None, reason="Release week", by=world.admin)
    with pytest.raises(Invalid, match="Release week"):
        rollout_actions.revert(rollout, by=world.operator)

    rollout_actions.revert(rollout, by=world.operator, reason="Trainings crash since.")
    world.run(rollout)
    assert rollout.status == "reverted"


def test_a_revert_does_not_need_the_node_to_be_well_but_keeps_to_the_budget(make_world):
    world = make_world(nodes=3)
    rollout = world.run(world.started(world.plan(world.revision(REBOOT), canary=0, batch="3")), seconds=4000, step=10)
    assert rollout.status == "succeeded"
    world.sim.nodes.witness.clear()

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=10)

    assert rollout.status == "reverted", rollout.waiting_for
    assert world.sim.nodes.peak_unavailable() == 1
    for name in ("n1", "n2"):
        assert "iommu" not in Status.from_json(world.sim.tuning(name)["status"]).observed.get("cmdline.iommu", "")


def test_one_node_can_be_put_back_alone(world):
    rollout = _succeeded(world)
    rollout_actions.revert(rollout, by=world.operator, step=rollout.steps.get(node_name="n2"))
    world.run(rollout)

    assert world.value("n2") == "60"
    assert world.value("n1") == world.value("n3") == "10"


# ── law 11: freshness ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_with_a_dead_watch_the_engine_reads_the_cluster_itself(world):
    rollout = world.started()
    for _ in range(60):
        reconcile.run(rollout.pk)
        rollout.refresh_from_db()
        if not rollout.is_live:
            break
        world.sim.tick(settings.SETPOINT_FRESH_SECONDS + 1)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"10"}


def test_with_a_dead_watch_a_cordon_by_others_is_still_seen(world):
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    rollout = rollout_actions.start(plan, by=world.operator)
    world.sim.nodes.cordon("n3")
    for _ in range(10):
        world.sim.tick(settings.SETPOINT_FRESH_SECONDS + 1)
        reconcile.run(rollout.pk)

    assert not Slot.objects.exists()


def test_a_plan_over_stale_rows_is_refused_with_their_age(world, clock):
    revision = world.revision()
    clock.forward(settings.SETPOINT_PLAN_FRESH_SECONDS + 1)
    with pytest.raises(WrongState, match="last seen 30"):
        world.plan(revision)


def test_an_unreachable_api_server_slows_a_rollout_and_says_so(world):
    rollout = world.started()
    world.sim.faults.outage = True
    world.clock.forward(settings.SETPOINT_FRESH_SECONDS + 1)
    world.slice(rollout)
    assert "cannot be read" in rollout.waiting_for or "does not answer" in rollout.waiting_for

    world.sim.faults.outage = False
    world.tick(60)
    world.run(rollout)
    assert rollout.status == "succeeded"


# ── law 12: one master ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cluster_of_another_installation_is_neither_planned_nor_touched(world):
    plan = world.approved()
    rollout = rollout_actions.start(plan, by=world.operator)
    Cluster.objects.update(ownership="foreign", ownership_mark="another")
    world.cluster.refresh_from_db()

    world.run(rollout, seconds=30)
    assert "another" in rollout.waiting_for
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}
    world.pool.refresh_from_db()
    with pytest.raises(WrongState, match="another"):
        world.plan(world.revision({"vm.swappiness": "20"}))


# ── law 13: skew ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_whose_agent_is_too_old_is_held_and_says_what_to_upgrade(world):
    plan = world.approved(world.plan(canary=0, batch="3"))
    world.sim.agents.restart("n2", "old")
    world.tick(30)
    world.node("n2").tuning.__class__.objects.filter(node__name="n2").update(protocol=9)

    rollout = rollout_actions.start(plan, by=world.operator)
    reconcile.run(rollout.pk)

    step = rollout.steps.get(node_name="n2")
    assert step.status == "held"
    assert "upgrade the control plane" in step.error


# ── law 14: what failure leaves ───────────────────────────────────────────────────────────────────────────────────────


def test_failing_before_the_first_disruptive_write_gives_the_node_back(make_world):
    world = make_world(nodes=1)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=1, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    # Consent is judged again at the drain: a bare pod that came after the approval.
    world.sim.add_pod("bare", node="n1", namespace="team-x")
    step = world.until(rollout, "held", seconds=60)

    assert "bare" in step.error
    assert not world.sim.node("n1")["spec"].get("unschedulable")
    assert not Slot.objects.exists()


def test_failing_after_it_keeps_the_cordon_and_the_slot_until_a_person_decides(make_world):
    world = make_world(nodes=2)
    world.sim.nodes.machine("n1").dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=1, batch="1", order="name", reboot_deadline_seconds=60)
    rollout = world.run(world.started(plan), seconds=2000, step=10)
    assert rollout.status == "stopped"
    assert world.sim.node("n1")["spec"].get("unschedulable")
    assert Slot.objects.get().node.name == "n1"

    world.tick(3600)
    world.slice(rollout)
    assert Slot.objects.count() == 1, "no lease returns a slot"

    rollout_actions.skip(rollout, rollout.steps.get(node_name="n1"), by=world.operator)
    world.run(rollout, seconds=900, step=10)
    assert not world.sim.node("n1")["spec"].get("unschedulable")
    assert not Slot.objects.filter(node__name="n1").exists()


def test_bad_verbs_leave_nothing_half_done(world):
    rollout = _queued(world)
    with pytest.raises(Refusal):
        rollout_actions.abort(rollout, by=world.operator, in_flight="explode")
    rollout.refresh_from_db()
    assert rollout.status == "queued"
    assert Plan.objects.get().status == "started"
