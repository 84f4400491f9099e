"""Laws 4, 6 and 10 for policy objects: no silence, killed anywhere, and every verb."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connection import registry
from clusters.fleet import FleetUnavailable
from components.policies import policy_objects
from jobs import tasks
from jobs.engine import claims, component_runner, reconcile
from jobs.rollouts import freezes, rollout_actions
from simfleet.apiserver.callers import person
from tests.jobs.component_steps import step_of
from tests.jobs.engine.policies.test_laws_of_policies import Killed
from tests.jobs.policy_steps import FIRST, PRIORITY, QUOTA, SPACE, TEAM, edit, outcomes, plan_of, there


def test_killed_in_the_middle_the_next_attempt_goes_on(world, monkeypatch):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)
    pk = step_of(rollout, FIRST).pk
    applied: list[str] = []
    real = world.fleet.apply_policy

    def apply(manifest: Any, *, dry_run: bool = False, force_at: str = "") -> Any:
        if len(applied) == 2 and not dry_run:
            raise Killed
        if not dry_run:
            applied.append(manifest["kind"])
        return real(manifest, dry_run=dry_run, force_at=force_at)

    with monkeypatch.context() as patch:
        patch.setattr(world.fleet, "apply_policy", apply)
        patch.setattr(claims, "release", lambda token: None)
        with pytest.raises(Killed):
            component_runner.carry_out(pk)
    assert applied == ["Namespace", "PriorityClass"]
    assert component_runner.carry_out(pk) is None, "the dead worker's lease is not over"
    world.clock.forward(claims.settings.SETPOINT_LEASE_SECONDS + 1)
    world.look()

    assert world.run(rollout).status == "succeeded"
    assert (step_of(rollout, FIRST).attempt, bool(there(world, QUOTA))) == (1, True)


def test_an_api_server_that_does_not_answer_is_waited_for_and_said(world, monkeypatch):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)

    def lost(*args: Any, **how: Any) -> Any:
        raise FleetUnavailable("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.fleet, "apply_policy", lost)
        component_runner.carry_out(step_of(rollout, FIRST).pk)
    step = step_of(rollout, FIRST)
    assert (step.status, step.waiting_for) == ("applying", "connection refused")
    assert step.deadline_at is not None
    assert step.events.filter(text="Tried again: connection refused").exists()
    assert world.run(rollout).status == "succeeded"


def test_an_object_changed_before_it_was_seen_ready_fails_in_words(world):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)
    component_runner.carry_out(step_of(rollout, FIRST).pk)
    edit(world, "resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}, "team-a")

    world.run(rollout)

    step = step_of(rollout, FIRST)
    assert (step.status, step.failed_in) == ("failed", "verifying")
    assert step.error.startswith("ResourceQuota team-a/gpus was changed by another party")


def test_without_a_worker_the_step_ends_and_says_so(world):
    rollout = world.started(plan_of(world, TEAM))
    for _ in range(5):
        reconcile.run(rollout.pk)
        world.tick(1000)

    step = step_of(rollout, FIRST)
    assert step.status == "failed"
    assert "No worker picked them up" in step.error


def test_a_freeze_an_abort_and_a_pause_come_before_the_first_write(world):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)
    freezes.freeze(cluster=world.cluster, reason="release week", by=world.operator)
    world.slice(rollout)
    assert step_of(rollout, FIRST).status == "queued"
    assert there(world, SPACE) is None

    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout)
    assert (rollout.status, outcomes(rollout)) == ("cancelled", {FIRST: "skipped"})


def test_an_abort_that_puts_back_takes_away_what_was_made(world):
    rollout = world.started(plan_of(world, TEAM))
    world.sim.faults.add("error", verb="patch", resource="resourcequotas")
    reconcile.run(rollout.pk)
    component_runner.carry_out(step_of(rollout, FIRST).pk)
    assert (step_of(rollout, FIRST).status, bool(there(world, PRIORITY))) == ("applying", True)

    rollout_actions.abort(rollout, by=world.operator, in_flight="revert")
    world.run(rollout)

    assert (rollout.status, outcomes(rollout)) == ("cancelled", {FIRST: "reverted"})
    assert (there(world, QUOTA), there(world, PRIORITY)) == (None, None)


def test_the_queue_of_helm_is_not_waited_for(world, releases, monkeypatch):

    queued: list[tuple[str, str]] = []
    monkeypatch.setattr(tasks.helm, "apply_async", lambda args, **how: queued.append(("helm", args[0])))
    monkeypatch.setattr(tasks.policies, "apply_async", lambda args, **how: queued.append(("policies", args[0])))
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    rollout = world.started(plan_of(world, TEAM, "cert-manager"))

    tasks.advance(str(rollout.pk))
    assert queued == [("policies", str(step_of(rollout, FIRST).pk))]
    tasks.policies(queued[0][1])
    tasks.advance(str(rollout.pk))
    assert queued[1:] == [("helm", str(step_of(rollout, "cert-manager").pk))]


def test_what_is_marked_is_ours_and_what_is_not_is_left_on_the_way_back(world):
    rollout = world.run(world.started(plan_of(world, TEAM)))
    assert there(world, QUOTA)["metadata"]["labels"] == {policy_objects.MARK: f"pool-{world.pool.pk}"}
    world.sim.api.delete(person("alice"), "priorityclasses", "training")
    world.sim.api.create(person("alice"), "priorityclasses", {"metadata": {"name": "training"}, "value": 7})

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "reverted"
    assert (there(world, PRIORITY) or {}).get("value") == 7
    assert step_of(rollout, FIRST).output[-2] == "PriorityClass training is not ours any more."
    assert registry.connect(world.cluster) is world.fleet
