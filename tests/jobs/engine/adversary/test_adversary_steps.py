"""Attacks on single steps: other writers on the node, refusals at the worst moment, and two workers."""

from __future__ import annotations

import itertools

from django.conf import settings

from clusters.models import Node
from jobs import tasks
from jobs.engine import failure, reconcile
from jobs.engine.outcome import StepOutcome
from jobs.models import Slot, Step
from jobs.rollouts import freezes, rollout_actions
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


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_sweep_forgets_no_rollout_however_many_there_are(world, monkeypatch):
    more_plans(world, 250, status="started", with_rollouts="running")
    woken = []
    monkeypatch.setattr(tasks.advance, "apply_async", lambda args, **kwargs: woken.append(args[0]))
    tasks.sweep()
    assert len(woken) == 250
