"""Guards of a step under way, each seen alone: where another stands behind it, the law's own test does not miss it."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.db.models import F

from clusters.models import NodeTuning
from jobs import rollouts
from jobs.engine import slice as engine
from jobs.models import ChangeSet, Slot, Step

REBOOT = {"cmdline.iommu": "pt"}
BOTH = {"vm.swappiness": "10", "cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


class Killed(BaseException):
    """As kill -9: no handler of the code under test may catch it."""


def reach(world, rollout, status: str, node: str = "n1") -> Step:
    """Stop at the first moment of this status: one transition a slice, and time only where nothing moves."""
    for _ in range(300):
        before = rollout.steps.get(node_name=node)
        if before.status == status:
            return before
        engine.advance(rollout.pk)
        if rollout.steps.get(node_name=node).status == before.status:
            world.tick(5)
    raise AssertionError(f"never {status}: {before.status} {before.waiting_for} {before.error}")


def answer(step: Step, **more: Any) -> None:
    """What the row says of the agent's answer, by default the best one that there is."""
    good = {"key": "vm.swappiness", "state": "Effective", "effective": "10", "written": "10"}
    row = NodeTuning.objects.get(node_id=step.node_id)
    status = {"step": str(step.pk), "attempt": step.attempt, "settings": [good], "bootID": step.boot_id}
    row.status = row.status | status | more.pop("status", {})
    row.observed = row.observed | {"vm.swappiness": "10"} | more.pop("observed", {})
    fields = {"status": row.status, "observed": row.observed, "observed_generation": step.generation}
    NodeTuning.objects.filter(node_id=step.node_id).update(**fields | more)


def is_cordoned(world, node: str = "n1") -> bool:
    return bool(world.sim.node(node)["spec"].get("unschedulable"))


# ── law 2: what was approved, until the write ─────────────────────────────────────────────────────────────────────────


def test_a_key_that_moves_while_the_node_is_drained_is_not_written(make_world):
    """The row knows the new value by the time the spec is written; what counts is what the plan saw."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(BOTH), canary=0))
    reach(world, rollout, "cordoning")
    world.sim.drift("n1", "vm.swappiness", "33")
    world.tick(5)

    step = world.until(rollout, "held")

    assert "33" in step.error
    assert world.value("n1") == "33"


def test_a_key_that_needed_no_change_in_the_plan_and_drifted_since_is_not_written(make_world):
    world = make_world(nodes=1)
    world.sim.drift("n1", "vm.swappiness", "10")
    world.tick(10)
    rollout = world.started(world.plan(world.revision({"vm.swappiness": "10", "vm.max_map_count": "300000"})))
    world.sim.drift("n1", "vm.swappiness", "33")
    world.tick(10)

    step = world.until(rollout, "held")

    assert "vm.swappiness moved" in step.error
    assert world.value("n1") == "33"


def test_a_revert_leaves_a_value_that_somebody_changed_since(make_world):
    world = make_world(nodes=1)
    rollout = world.run(world.started())
    world.sim.drift("n1", "vm.swappiness", "33")
    world.tick(120)

    rollouts.revert(rollout, by=world.operator)
    step = world.until(rollout, "held")

    assert "33" in step.error
    assert world.value("n1") == "33"


# ── law 6: whoever lost a step commits nothing ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", [{"claim": "another"}, {"version": F("version") + 1}], ids=["claim", "version"])
def test_whoever_lost_a_step_in_flight_commits_nothing(make_world, monkeypatch, lost):
    world = make_world(nodes=1)
    rollout = world.started()
    reach(world, rollout, "applying")
    real = engine._decide

    def slow(views):
        out = real(views)
        Step.objects.update(**lost)
        return out

    monkeypatch.setattr(engine, "_decide", slow)
    engine.advance(rollout.pk)

    assert rollout.steps.get().status == "applying"


# ── law 8: effective or nothing ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "told",
    [
        {"status": {"settings": []}, "observed": {"vm.swappiness": "60"}},
        {"status": {"step": "another"}},
        {"status": {"attempt": 7}},
        {"observed_generation": 0},
    ],
    ids=["no word of the key", "another step", "another attempt", "an earlier spec"],
)
def test_only_the_kernels_answer_to_this_very_spec_is_success(make_world, told):
    world = make_world(nodes=1)
    rollout = world.started()
    step = reach(world, rollout, "verifying")
    answer(step, **told)

    engine.advance(rollout.pk)
    step.refresh_from_db()
    assert (step.status, bool(step.waiting_for)) == ("verifying", True)

    answer(step)
    engine.advance(rollout.pk)
    step.refresh_from_db()
    assert step.status == "succeeded", "or the test told something else than it meant to"


def test_a_value_that_the_kernel_did_not_take_fails_at_once(make_world):
    world = make_world(nodes=1)
    rollout = world.started()
    step = reach(world, rollout, "verifying")
    report = {"key": "vm.swappiness", "state": "NotEffective", "effective": "12", "written": "10", "reason": "rounded"}
    answer(step, status={"settings": [report]}, observed={"vm.swappiness": "12"})

    engine.advance(rollout.pk)

    step.refresh_from_db()
    assert (step.status, step.error) == ("failed", "vm.swappiness: rounded.")


def test_an_answer_that_cannot_be_read_is_told_and_fails_a_soaking_node(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, soak_seconds=600))
    step = reach(world, rollout, "verifying")
    kept = NodeTuning.objects.values("status", "observed", "observed_generation").get()
    answer(step, status={"step": "another"}, malformed="settings: must be a list")
    engine.advance(rollout.pk)
    step.refresh_from_db()
    assert "cannot be read: settings: must be a list" in step.waiting_for

    NodeTuning.objects.update(malformed="", **kept)
    step = reach(world, rollout, "soaking")
    NodeTuning.objects.update(malformed="settings: must be a list")
    engine.advance(rollout.pk)

    step.refresh_from_db()
    assert step.status == "failed"
    assert "cannot be read: settings: must be a list" in step.error


def test_a_node_is_done_only_when_it_is_ready_again(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0))
    reach(world, rollout, "returning")
    world.sim.nodes.set_ready("n1", is_ready=False, agent=False)
    world.look()
    world.slice(rollout)
    assert rollout.steps.get().waiting_for == "n1 is not Ready yet."
    assert Slot.objects.exists()

    world.sim.nodes.set_ready("n1", is_ready=True)
    world.tick(10)
    world.run(rollout)
    assert rollout.status == "succeeded"


# ── law 9: identity ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_replaced_a_moment_ago_is_not_called_done(make_world):
    """No row says so yet: only the node itself does."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0))
    reach(world, rollout, "returning")
    world.sim.nodes.replace("n1")

    engine.advance(rollout.pk)

    step = rollout.steps.get()
    assert step.status == "failed"
    assert "another node under the same name" in step.error


# ── law 14: what failure leaves ───────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_failed_after_its_spec_was_written_stays_cordoned(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, step_deadline_seconds=60))
    reach(world, rollout, "applying")
    world.sim.agents.restart("n1", "hanging")

    world.until(rollout, "failed")

    assert is_cordoned(world)
    assert Slot.objects.get().node.name == "n1"


def test_a_node_whose_eviction_nobody_noted_stays_cordoned(make_world, monkeypatch):
    """The worker is killed right after the eviction, and what is found later holds the step."""
    world = make_world(nodes=1)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=1, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    reach(world, rollout, "draining")
    real = world.fleet.evict

    def evict(pod):
        real(pod)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(world.fleet, "evict", evict)
        dying.setattr(engine.claims, "release", lambda token: None)
        with pytest.raises(Killed):
            world.until(rollout, "applying", seconds=10)
    world.sim.add_pod("bare", node="n1", namespace="team-x")
    world.tick(settings.SETPOINT_LEASE_SECONDS + 5)

    step = world.until(rollout, "held", seconds=60)

    assert "bare" in step.error
    assert is_cordoned(world)
    assert Slot.objects.get().node.name == "n1"


def test_a_step_that_ends_before_its_cordon_returns_its_slot(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    reach(world, rollout, "admitted")
    row = ChangeSet.objects.get()
    row.content["items"][0]["expect"] = "of somebody else"
    ChangeSet.objects.filter(pk=row.pk).update(content=row.content)

    engine.advance(rollout.pk)

    assert rollout.steps.get().status == "held"
    assert not Slot.objects.exists()


def test_a_held_node_that_was_disturbed_keeps_cordon_and_slot_when_the_rollout_is_aborted(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(BOTH), canary=0))
    reach(world, rollout, "cordoning")
    world.sim.drift("n1", "vm.swappiness", "33")
    world.until(rollout, "held")
    rollouts.abort(rollout, by=world.operator)

    world.run(rollout, seconds=30)

    assert (rollout.status, rollout.steps.get().status) == ("cancelled", "failed")
    assert is_cordoned(world)
    assert Slot.objects.get().node.name == "n1"
