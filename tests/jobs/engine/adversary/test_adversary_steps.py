"""Attacks on single steps: other writers on the node, refusals at the worst moment, and altered rows."""

from __future__ import annotations

import itertools
import json

import pytest
from django.conf import settings
from django.db import connection

from clusters import objects
from clusters.fleet import Taint
from clusters.models import Node
from common.errors import WrongState
from contract import names
from jobs import tasks
from jobs.engine import failure, reconcile, step_views
from jobs.engine.outcome import StepOutcome
from jobs.models import Plan, Rollout, Slot, Step
from jobs.rollouts import freezes, rollout_actions
from profiles.models import Revision
from tests.jobs.rows import more_plans

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}
BOB = "bob@example.org"


def annotations_of(world, name="n1"):
    return world.sim.node(name)["metadata"].get("annotations") or {}


def is_cordoned(world, name="n1"):
    return bool(world.sim.node(name)["spec"].get("unschedulable"))


def stuck_before_a_pdb(world, **strategy):
    world.sim.pods.workload("Deployment", "vllm", namespace="chat", replicas=1, labels={"app": "vllm"})
    world.sim.pods.budget("vllm", namespace="chat", labels={"app": "vllm"}, minAvailable=1)
    world.tick(10)
    return world.started(world.plan(world.revision(REBOOT), canary=0, **strategy))


# ── law 5: cordons of other hands ─────────────────────────────────────────────────────────────────────────────────────


def test_a_cordon_set_between_our_look_and_our_write_stays_theirs(make_world, monkeypatch):
    world = make_world(nodes=1)
    real, cordon = world.fleet.node, world.fleet.cordon

    def raced(node, *args, **kwargs):
        monkeypatch.setattr(world.fleet, "cordon", cordon)
        world.sim.nodes.cordon(node, by=BOB)
        return cordon(node, *args, **kwargs)

    monkeypatch.setattr(world.fleet, "cordon", raced)
    monkeypatch.setattr(world.fleet, "node", real)
    rollout = world.run(world.started(world.plan(world.revision(REBOOT), canary=0)), seconds=2000, step=10)

    assert rollout.status == "succeeded"
    assert is_cordoned(world), "the person's cordon was released by Setpoint"
    assert names.CORDONED_BY not in annotations_of(world)


def test_a_node_kept_cordoned_is_handed_over_with_none_of_our_marks(make_world):
    """Else the mark, and the wish, still stand when the person has long released the node."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    world.until(rollout, "restarting")
    world.sim.nodes.keep_cordoned("n1")
    world.run(rollout, seconds=3000, step=10)

    assert is_cordoned(world)
    assert names.CORDONED_BY not in annotations_of(world)
    assert names.KEEP_CORDONED not in annotations_of(world)

    # The person's now: putting the rollout back leaves it cordoned.
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=3000, step=10)
    assert rollout.status == "reverted", rollout.waiting_for
    assert is_cordoned(world)


def test_keep_cordoned_counts_for_a_node_that_is_given_back_early(make_world):
    world = make_world(nodes=1)
    world.sim.nodes.machine("n1").dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=0, reboot_deadline_seconds=60)
    rollout = world.run(world.started(plan), seconds=1000, step=10)
    world.sim.nodes.keep_cordoned("n1")
    world.look()
    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    world.run(rollout, seconds=100)

    assert rollout.steps.get().status == "skipped"
    assert is_cordoned(world)


def test_our_mark_does_not_stay_on_a_node_that_a_person_uncordoned(make_world):
    """A mark left behind would make the person's next cordon look like ours, and it would be released."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    step = world.until(rollout, "restarting")
    Step.objects.filter(pk=step.pk).update(status="returning")
    world.sim.nodes.cordon("n1", by=BOB, is_cordoned=False)
    world.look()
    world.run(rollout, seconds=600, step=10)

    assert not is_cordoned(world)
    assert names.CORDONED_BY not in annotations_of(world)


def test_after_two_foreign_uncordons_the_persons_next_cordon_is_not_ours(make_world):
    world = make_world(nodes=1)
    rollout = stuck_before_a_pdb(world)
    world.until(rollout, "draining")
    for _ in range(2):
        world.sim.nodes.cordon("n1", by=BOB, is_cordoned=False)
        world.tick(5)
        world.slice(rollout)
        world.look()
    world.until(rollout, "held", seconds=10)

    world.sim.nodes.cordon("n1", by=BOB)
    world.look()
    assert names.CORDONED_BY not in annotations_of(world)
    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    world.run(rollout, seconds=60)
    assert is_cordoned(world)


def test_a_cordon_that_another_of_our_rollouts_left_is_taken_over_with_its_slot(make_world):
    """The later rollout repairs the node in its own place; otherwise that cordon would never be released."""
    world = make_world(nodes=2)
    machine = world.sim.nodes.machine("n1")
    machine.dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=1, batch="1", order="name", reboot_deadline_seconds=60)
    first = world.run(world.started(plan), seconds=2000, step=10)
    rollout_actions.abort(first, by=world.operator)
    world.run(first)
    machine.dies_at_reboot = False
    machine.power_on()
    world.tick(300)

    later = world.started(world.plan(world.revision(HUGE), canary=0, batch="2", include_unavailable=True))
    world.run(later, seconds=3000, step=10)

    assert later.status == "succeeded", later.waiting_for
    assert not is_cordoned(world)
    assert names.CORDONED_BY not in annotations_of(world)
    assert not Slot.objects.exists()


# ── law 4 and 14: endings that meet a refusal ─────────────────────────────────────────────────────────────────────────


def test_a_node_that_cannot_be_given_back_does_not_stop_the_engine(make_world):
    """A step held before any write, whose uncordon is then refused, ends, and the rollout continues."""
    world = make_world(nodes=1)
    rollout = stuck_before_a_pdb(world, drain_timeout_seconds=60)
    world.until(rollout, "draining")
    world.sim.faults.add("refuse", verb="patch", resource="nodes", name="n1")
    step = world.until(rollout, "failed", seconds=200)

    assert "refuse" in step.error
    assert Slot.objects.get().step_id == step.pk, "still cordoned by us: the place stays taken"
    world.sim.faults.clear()
    rollout_actions.skip(rollout, step, by=world.operator)
    world.run(rollout, seconds=60)
    assert rollout.steps.get().status == "skipped"
    assert not is_cordoned(world)


class _Seen:
    """The part of a View that an ending looks at."""

    is_revert = False
    tuning = None

    def __init__(self, step: Step) -> None:
        self.step = step


def test_every_ending_is_a_legal_move_from_every_state_that_is_looked_at():
    looked_at = (*Step.ACTIVE, Step.Status.QUEUED)
    ends = (failure.fail, failure.hold, failure.node_gone)
    for status, end, disrupted, ours in itertools.product(looked_at, ends, (False, True), (False, True)):
        step = Step(status=status, is_disrupted=disrupted, is_ours_to_uncordon=ours)
        out: StepOutcome = end(_Seen(step), "why")  # type: ignore[arg-type]
        assert out.to in Step.NEXT[status], (status, end.__name__, disrupted, ours, out.to)


def test_a_revert_held_before_its_first_write_gives_the_node_back(make_world):
    """Its node was disturbed by the way forward, and given back since: law 14 judges the attempt, not the history."""
    world = make_world(nodes=1)
    rollout = world.run(world.started(world.plan(world.revision(REBOOT), canary=0)), seconds=2000, step=10)
    assert rollout.status == "succeeded"
    world.sim.add_pod("bare", node="n1", namespace="team-x")
    rollout_actions.revert(rollout, by=world.operator)
    step = world.until(rollout, "held", seconds=60)

    assert "bare" in step.error
    assert not is_cordoned(world)
    assert not Slot.objects.exists()


def test_a_deleted_object_of_ours_is_not_a_deleted_node(make_world):
    """The node is there, cordoned by us: its slot is not given away, and the sentence names what is missing."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0))
    for _ in range(50):
        if rollout.steps.get().status == "applying":
            break
        reconcile.advance(rollout.pk)
    world.sim.store.delete("nodetunings", "n1")
    reconcile.advance(rollout.pk)

    step = rollout.steps.get()
    assert "gone" not in step.error
    assert not (is_cordoned(world) and not Slot.objects.exists()), "cordoned by us, and its place given away"
    world.run(rollout, seconds=60)
    assert rollout.steps.get().status in ("failed", "held")
    assert "not there" in rollout.steps.get().error


def test_an_api_server_that_asks_to_wait_for_days_cannot_outlast_a_deadline(make_world):
    world = make_world(nodes=1)
    world.sim.faults.add("throttle", verb="patch", resource="nodetunings", name="n1", retry_after=5 * 86_400)
    rollout = world.started(world.plan(canary=0, step_deadline_seconds=60))
    world.run(rollout, seconds=200, step=10)

    assert rollout.steps.get().status == "failed"


def test_a_lease_too_short_for_any_write_ends_in_words(world, monkeypatch):
    monkeypatch.setattr(settings, "SETPOINT_LEASE_SECONDS", settings.SETPOINT_CALL_TIMEOUT_SECONDS - 1)
    rollout = world.run(world.started(world.plan(canary=0, batch="3", step_deadline_seconds=30)), seconds=120, step=5)
    assert {s.status for s in rollout.steps.all()} == {"failed"}


# ── law 4: the time of a queued step begins with its turn ─────────────────────────────────────────────────────────────


def test_days_in_a_freeze_cost_a_queued_step_nothing(world):
    """Its turn comes two days late; a moment's silence of its agent must not end it at once."""
    rollout = world.started(world.plan(canary=0, batch="3"))
    freeze = freezes.freeze(cluster=world.cluster, reason="Release week", by=world.operator)
    world.slice(rollout)
    world.tick(2 * settings.SETPOINT_WAIT_HOURS * 3600)
    freezes.lift(freeze, by=world.operator)
    Node.objects.filter(name="n2").update(is_ready=False)
    world.slice(rollout)
    assert rollout.steps.get(node_name="n2").status == "queued"
    world.look()
    Node.objects.filter(name="n2").update(is_ready=True)
    world.tick(5)
    world.run(rollout, seconds=60)
    assert rollout.status == "succeeded"


def test_a_step_that_never_gets_a_slot_is_held_when_its_time_is_over(make_world):
    world = make_world(nodes=2)
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="2", order="name"))
    world.sim.add_node("n9", labels={"pool": "other"})
    world.sim.nodes.cordon("n9", by=BOB)
    world.look()
    rollout = rollout_actions.start(plan, by=world.operator)
    world.slice(rollout)
    assert "Needs a slot" in rollout.waiting_for

    world.tick(settings.SETPOINT_WAIT_HOURS * 3600 + 60)
    world.slice(rollout)
    assert {s.status for s in rollout.steps.all()} == {"held"}
    assert "Needs a slot" in rollout.steps.first().error


def test_a_canary_that_is_held_keeps_the_next_batch_closed(world):
    rollout = world.started(world.plan(canary=1, batch="2", order="name"))
    world.sim.drift("n1", "vm.swappiness", "33")
    world.tick(10)
    world.run(rollout, seconds=30)

    assert dict(rollout.steps.values_list("node_name", "status")) == {"n1": "held", "n2": "queued", "n3": "queued"}
    assert "n1 is held" in rollout.waiting_for


# ── law 1: two workers ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_lost_its_claim_keeps_no_slot(world, monkeypatch):
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    real = reconcile._decide

    def slow(views):
        out = real(views)
        if views[0].step.status == "queued":
            Step.objects.filter(status="queued").update(claim="another")
        return out

    monkeypatch.setattr(reconcile, "_decide", slow)
    reconcile.advance(rollout.pk)
    assert not Slot.objects.exists()


def test_two_workers_together_keep_to_max_in_flight(make_world, monkeypatch):
    world = make_world(nodes=6)
    rollout = world.started(world.plan(canary=0, batch="6", max_in_flight=2))
    real = reconcile._decide
    inside = []

    def decide(views):
        out = real(views)
        if not inside and views[0].step.status == "queued":
            inside.append(1)
            reconcile.advance(rollout.pk)  # the second worker, in the middle of the first one's slice
        return out

    monkeypatch.setattr(reconcile, "_decide", decide)
    reconcile.advance(rollout.pk)
    assert rollout.steps.filter(status__in=Step.ACTIVE).count() <= 2


# ── law 2: altered rows ───────────────────────────────────────────────────────────────────────────────────────────────


def alter(revision: Revision, value: str) -> None:
    """Alter the row as with a database shell: the model itself refuses."""
    row = Revision.objects.get(pk=revision.pk)
    row.content["settings"][0]["value"] = value
    with connection.cursor() as cursor:
        table = Revision._meta.db_table
        cursor.execute(f"UPDATE {table} SET content = %s WHERE id = %s", [json.dumps(row.content), row.pk])


def test_a_plan_of_an_altered_revision_does_not_start(world):
    plan = world.approved()
    alter(plan.revision, "99")
    with pytest.raises(WrongState, match="digest"):
        rollout_actions.start(Plan.objects.get(pk=plan.pk), by=world.operator)


def test_a_revision_altered_after_the_start_is_not_carried_out(world):
    rollout = world.started()
    alter(rollout.plan.revision, "99")
    world.run(rollout, seconds=30)
    assert rollout.status == "cancelled"
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}


def test_a_revision_altered_meanwhile_holds_a_step_that_is_about_to_write(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision({"vm.swappiness": "11"}), canary=0))
    reconcile.advance(rollout.pk)
    assert rollout.steps.get().status == "applying"
    alter(rollout.plan.revision, "99")
    step_views.target_of.cache_clear()  # as in a worker that starts now
    world.run(rollout, seconds=30)
    assert rollout.steps.get().status == "held"
    assert world.value("n1") == "60"


def test_a_strategy_altered_after_the_start_starts_nothing_more(world):
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "succeeded")
    Plan.objects.filter(pk=rollout.plan_id).update(strategy=rollout.plan.strategy | {"max_failures": 99})
    done = rollout.steps.filter(status="succeeded").count()
    world.tick(5)
    world.run(rollout, seconds=30)

    assert rollout.steps.filter(status="succeeded").count() <= done + 1
    assert rollout.steps.get(node_name="n3").status == "queued"
    assert "digest" in rollout.waiting_for


def test_a_step_whose_class_was_altered_is_held(make_world):
    """An unnoticed change would let a reboot run as a live change, without slot, cordon or drain."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    Step.objects.update(worst_class="live")
    world.run(rollout, seconds=30)
    assert rollout.steps.get().status == "held"


def test_a_taint_that_moved_since_the_plan_is_not_overwritten(make_world):
    world = make_world(nodes=1)
    plan = world.plan(world.revision({}, taints=[("example.com/pool", "gold", "NoSchedule")]), canary=0)
    rollout = world.started(plan)
    taint = {"key": "example.com/pool", "value": "silver", "effect": "NoSchedule"}
    node = world.fleet.node("n1")
    world.fleet.taint("n1", node["metadata"]["uid"], add=[Taint(*taint.values())], remove=[])
    world.look()
    world.run(rollout, seconds=30)

    assert rollout.steps.get().status == "held"
    assert [t["value"] for t in world.sim.node("n1")["spec"]["taints"]] == ["silver"]


def test_a_revert_leaves_a_taint_that_somebody_changed_since(make_world):
    world = make_world(nodes=1)
    plan = world.plan(world.revision({}, taints=[("example.com/pool", "gold", "NoSchedule")]), canary=0)
    rollout = world.run(world.started(plan))
    uid = world.fleet.node("n1")["metadata"]["uid"]
    world.fleet.taint("n1", uid, add=[Taint("example.com/pool", "silver", "NoSchedule")], remove=[])
    world.look()
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=30)

    assert rollout.steps.get().status == "held"
    assert [t["value"] for t in world.sim.node("n1")["spec"]["taints"]] == ["silver"]


# ── law 12: a database older than its cluster ─────────────────────────────────────────────────────────────────────────


def test_an_object_newer_than_the_database_is_held_not_overwritten(make_world):
    """The cluster knows steps that the database does not, after a restore from backup."""
    world = make_world(nodes=2)
    plan = world.approved(world.plan(canary=0, batch="2", order="name"))
    forgotten = world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}), canary=0, batch="2")))
    assert world.value("n1") == "30"
    _forget(forgotten)
    type(world.state("n1")).objects.all().delete()
    rollout = rollout_actions.start(plan, by=world.operator)
    before = world.sim.tuning("n1")["spec"]

    world.run(rollout, seconds=20)
    step = rollout.steps.get(node_name="n1")
    assert step.status == "held"
    assert world.sim.tuning("n1")["spec"]["step"][:8] in step.error
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=20)
    assert rollout.steps.get(node_name="n1").status == "held", "a retry is no decision to overwrite"
    assert world.sim.tuning("n1")["spec"] == before

    left_out = world.plan(world.revision({"vm.swappiness": "40"})).nodes.values_list("left_out", flat=True)
    assert all("database" in why for why in left_out)


def test_deleting_the_newer_object_is_the_decision_to_go_on(make_world):
    world = make_world(nodes=1)
    forgotten = world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}), canary=0)))
    _forget(forgotten)
    type(world.state("n1")).objects.all().delete()
    world.sim.store.delete("nodetunings", "n1")
    world.look()
    world.observe()

    rollout = world.run(world.started(world.plan(canary=0)), seconds=60)
    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.value("n1") == "10"


def _forget(rollout: Rollout) -> None:
    plan = rollout.plan
    rollout.delete()
    plan.delete()


def test_a_restored_database_does_not_touch_a_node_it_thinks_is_idle(make_world):
    """The cordon of a step that the database does not know is ours by its mark; its node counts as out (law 1)."""
    world = make_world(nodes=2)
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="2", order="name"))
    uid = world.fleet.node("n1")["metadata"]["uid"]
    world.fleet.cordon("n1", uid, f"{settings.SETPOINT_INSTALLATION}/11111111-2222-4333-8444-555555555555")
    world.look()
    rollout = rollout_actions.start(plan, by=world.operator)
    world.run(rollout, seconds=60)
    assert not Slot.objects.exists()
    assert objects.cordon_owner(world.sim.node("n1")).endswith("555555555555")


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_sweep_forgets_no_rollout_however_many_there_are(world, monkeypatch):
    more_plans(world, 250, status="started", with_rollouts="running")
    woken = []
    monkeypatch.setattr(tasks.advance, "apply_async", lambda args, **kwargs: woken.append(args[0]))
    tasks.sweep()
    assert len(woken) == 250


# ── law 5: "keep cordoned" ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wish_to_keep_the_node_that_comes_with_our_last_look_is_heard(make_world, monkeypatch):
    """The annotation is set after the engine read the node, and before it uncordons."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    real = world.fleet.uncordon

    def raced(node, *args):
        world.sim.nodes.keep_cordoned(node)
        return real(node, *args)

    monkeypatch.setattr(world.fleet, "uncordon", raced)
    world.run(rollout, seconds=3000, step=10)

    assert rollout.status == "succeeded"
    assert is_cordoned(world)
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(annotations_of(world))
    assert any("Kept cordoned" in text for text in rollout.events.values_list("text", flat=True))


def test_a_wish_whose_maker_uncordoned_the_node_does_not_outlive_the_rollout(make_world):
    """The wish would keep the node cordoned after some later rollout, when it is long forgotten."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    step = world.until(rollout, "restarting")
    world.sim.nodes.keep_cordoned("n1")
    Step.objects.filter(pk=step.pk).update(status="returning")
    world.sim.nodes.cordon("n1", by=BOB, is_cordoned=False)
    world.look()
    world.run(rollout, seconds=600, step=10)

    assert not is_cordoned(world)
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(annotations_of(world))


def test_a_wish_on_a_node_that_others_cordoned_stays_theirs(make_world):
    world = make_world(nodes=1)
    world.sim.nodes.cordon("n1", by=BOB)
    world.sim.nodes.keep_cordoned("n1", by=BOB)
    world.look()
    plan = world.plan(world.revision(HUGE), canary=0, include_unavailable=True)
    rollout = world.run(world.started(plan), seconds=600, step=5)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert is_cordoned(world)
    assert names.KEEP_CORDONED in annotations_of(world)


def test_a_wish_on_a_failed_node_keeps_the_cordon_through_retry_and_success(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    machine.dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=0, reboot_deadline_seconds=600)
    rollout = world.run(world.started(plan), seconds=3000, step=10)
    world.sim.nodes.keep_cordoned("n1")
    machine.dies_at_reboot = False
    machine.power_on()
    world.tick(300)
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=10)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert is_cordoned(world)
    assert not Slot.objects.exists()
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(annotations_of(world))
