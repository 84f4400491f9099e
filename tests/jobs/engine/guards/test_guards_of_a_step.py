"""Guards of a step in progress, each alone: where another backs it, the law's own test does not notice its loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from clusters.models import NodeTuning
from contract import names
from jobs.engine import reconcile, step_views
from jobs.models import Slot, Step
from jobs.rollouts import rollout_actions
from tests.jobs.moments import is_cordoned, reach

BOTH = {"vm.swappiness": "10", "cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


def answer(step: Step, **more: Any) -> None:
    """Store the agent's answer in its row, by default the best one that there is."""
    good = {"key": "vm.swappiness", "state": "Effective", "effective": "10", "written": "10"}
    row = NodeTuning.objects.get(node_id=step.node_id)
    status = {"step": str(step.pk), "attempt": step.attempt, "settings": [good], "bootID": step.boot_id}
    row.status = row.status | status | more.pop("status", {})
    row.observed = row.observed | {"vm.swappiness": "10"} | more.pop("observed", {})
    fields = {"status": row.status, "observed": row.observed, "observed_generation": step.generation}
    NodeTuning.objects.filter(node_id=step.node_id).update(**fields | more)


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

    rollout_actions.revert(rollout, by=world.operator)
    step = world.until(rollout, "held")

    assert "33" in step.error
    assert world.value("n1") == "33"


def test_a_revert_to_a_revision_that_was_altered_since_writes_nothing(make_world):
    """The plan that is put back is intact; what it goes back to is not."""
    world = make_world(nodes=1)
    first = world.revision({"vm.swappiness": "30"})
    world.run(world.started(world.plan(first)))
    rollout = world.run(world.started(world.plan(world.revision({"vm.swappiness": "10"}))))
    first.content["settings"][0]["value"] = "99"
    with connection.cursor() as cursor:  # past the model, which refuses
        cursor.execute("UPDATE profiles_revision SET content = %s WHERE id = %s", [json.dumps(first.content), first.pk])
    step_views.target_of.cache_clear()

    rollout_actions.revert(rollout, by=world.operator)
    step = world.until(rollout, "held")

    assert "is not what was published" in step.error
    assert world.value("n1") == "10"


# ── law 5: cordons ────────────────────────────────────────────────────────────────────────────────────────────────────


def stuck_in_restarting(world, **strategy: Any):
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, **strategy))
    reach(world, rollout, "applying")
    world.sim.agents.restart("n1", "hanging")
    reach(world, rollout, "restarting")
    return rollout


def test_who_cordoned_a_node_before_us_may_uncordon_it_while_we_work(make_world):
    """Put back is only what was ours."""
    world = make_world(nodes=1)
    world.sim.nodes.cordon("n1")
    world.look()
    rollout = stuck_in_restarting(world, include_unavailable=True)

    world.sim.nodes.cordon("n1", is_cordoned=False)
    for _ in range(3):
        world.look()
        world.slice(rollout)

    assert not is_cordoned(world)
    assert names.CORDONED_BY not in world.sim.node("n1")["metadata"].get("annotations", {})


def test_a_disturbed_node_that_was_uncordoned_twice_carries_no_mark_of_ours(make_world):
    """A mark would make the cordon that a person sets next look like ours, and be released when the node is skipped."""
    world = make_world(nodes=1)
    rollout = stuck_in_restarting(world)
    for _ in range(2):
        world.sim.nodes.cordon("n1", is_cordoned=False)
        world.look()
        world.slice(rollout)
        world.look()
    world.until(rollout, "held", seconds=10)
    world.sim.nodes.cordon("n1")
    world.look()

    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    world.run(rollout, seconds=60)

    assert rollout.steps.get().status == "skipped"
    assert is_cordoned(world)


# ── law 6: a worker that lost a step commits nothing ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", [{"claim": "another"}, {"version": F("version") + 1}], ids=["claim", "version"])
def test_whoever_lost_a_step_in_flight_commits_nothing(make_world, monkeypatch, lost):
    world = make_world(nodes=1)
    rollout = world.started()
    reach(world, rollout, "applying")
    real = reconcile._decide

    def slow(views):
        out = real(views)
        Step.objects.update(**lost)
        return out

    monkeypatch.setattr(reconcile, "_decide", slow)
    reconcile.advance(rollout.pk)

    assert rollout.steps.get().status == "applying"


# ── law 8: effective or nothing ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "reply",
    [
        {"status": {"settings": []}, "observed": {"vm.swappiness": "60"}},
        {"status": {"step": "another"}},
        {"status": {"attempt": 7}},
        {"observed_generation": 0},
    ],
    ids=["no word of the key", "another step", "another attempt", "an earlier spec"],
)
def test_only_the_kernels_answer_to_this_very_spec_is_success(make_world, reply):
    world = make_world(nodes=1)
    rollout = world.started()
    step = reach(world, rollout, "verifying")
    answer(step, **reply)

    reconcile.advance(rollout.pk)
    step.refresh_from_db()
    assert (step.status, bool(step.waiting_for)) == ("verifying", True)

    answer(step)
    reconcile.advance(rollout.pk)
    step.refresh_from_db()
    assert step.status == "succeeded", "or the test told something else than it meant to"


def test_a_value_that_the_kernel_did_not_take_fails_at_once(make_world):
    world = make_world(nodes=1)
    rollout = world.started()
    step = reach(world, rollout, "verifying")
    report = {"key": "vm.swappiness", "state": "NotEffective", "effective": "12", "written": "10", "reason": "rounded"}
    answer(step, status={"settings": [report]}, observed={"vm.swappiness": "12"})

    reconcile.advance(rollout.pk)

    step.refresh_from_db()
    assert (step.status, step.error) == ("failed", "vm.swappiness: rounded.")


def test_an_answer_that_cannot_be_read_is_told_and_fails_a_soaking_node(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, soak_seconds=600))
    step = reach(world, rollout, "verifying")
    kept = NodeTuning.objects.values("status", "observed", "observed_generation").get()
    answer(step, status={"step": "another"}, malformed="settings: must be a list")
    reconcile.advance(rollout.pk)
    step.refresh_from_db()
    assert "cannot be read: settings: must be a list" in step.waiting_for

    NodeTuning.objects.update(malformed="", **kept)
    step = reach(world, rollout, "soaking")
    NodeTuning.objects.update(malformed="settings: must be a list")
    reconcile.advance(rollout.pk)

    step.refresh_from_db()
    assert step.status == "failed"
    assert "cannot be read: settings: must be a list" in step.error


FULL = {"type": "Degraded", "status": "True", "reason": "JournalUnwritable", "message": "the journal: No space left"}


@pytest.mark.parametrize(("wanted", "stage"), [({"vm.swappiness": "10"}, "verifying"), (BOTH, "restarting")])
def test_an_agent_that_refuses_to_work_is_waited_for_with_its_reason_and_gets_no_grant(make_world, wanted, stage):
    """Seen on a machine with a full disk: the step said that the value is not there yet, and not why."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(wanted), canary=0))
    step = reach(world, rollout, stage)
    answer(step, status={"settings": [], "conditions": [FULL]}, observed={"vm.swappiness": "60"})

    reconcile.advance(rollout.pk)

    step.refresh_from_db()
    assert (step.status, step.granted_at) == (stage, None)
    assert step.waiting_for == "The agent refuses to work: the journal: No space left."


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
