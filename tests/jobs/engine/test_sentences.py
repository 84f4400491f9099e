"""Sentences of a wait are true the whole time that they are shown, and name its end (law 4)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs.engine import progress
from jobs.engine.event_log import clock_time, set_waiting_sentence
from jobs.models import Rollout, Step
from tests.jobs.conftest import World

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


def granted(world: World, rollout: Rollout) -> Step:
    for _ in range(100):
        world.slice(rollout)
        step = rollout.steps.get()
        if step.granted_at:
            return step
        world.tick(1)
    raise AssertionError("never granted")


def waiting_text(world: World, rollout: Rollout) -> str:
    world.slice(rollout)
    return str(rollout.steps.get().waiting_for)


def stuck_agent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the agent journal the grant, and the command that restarts never end."""
    machine = world.sim.nodes.machine("n1")
    monkeypatch.setattr(machine, "reboot", lambda: None)
    monkeypatch.setattr(machine, "restart_kubelet", lambda: None)


def test_a_node_that_is_down_for_its_reboot_is_not_said_to_answer(make_world):
    world = make_world(nodes=1)
    world.sim.nodes.machine("n1").dies_at_reboot = True
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, reboot_deadline_seconds=600))
    step = granted(world, rollout)
    world.tick(30)

    sentence = waiting_text(world, rollout)
    assert "answers" not in sentence
    assert "n1 is down for its reboot" in sentence
    assert clock_time(step.deadline_at) in sentence
    assert "shutting down" in sentence

    world.run(rollout, seconds=900, step=10)
    step.refresh_from_db()
    assert step.status == "failed"
    assert "n1 is down for its reboot" in step.error
    assert "until" not in step.error, "what is over is told without a time to come"
    assert step.error.count("shutting down") == 1, "the reason is given once"


def test_a_grant_that_the_agent_took_and_did_not_carry_out_is_told_and_ends_before_the_reboots_time(
    make_world, monkeypatch
):
    world = make_world(nodes=1)
    stuck_agent(world, monkeypatch)
    plan = world.plan(world.revision(REBOOT), canary=0, step_deadline_seconds=120, reboot_deadline_seconds=3600)
    rollout = world.started(plan)
    step = granted(world, rollout)
    world.tick(30)
    assert world.sim.tuning("n1")["status"]["restart"]["state"] == "Journalled"

    sentence = waiting_text(world, rollout)
    assert "took the reboot grant" in sentence
    assert clock_time(step.granted_at + timedelta(seconds=120)) in sentence

    world.run(rollout, seconds=200, step=10)
    step.refresh_from_db()
    assert step.status == "failed"
    assert "took the reboot grant" in step.error
    assert "did not go down" in step.error
    assert world.sim.node("n1")["spec"].get("unschedulable"), "it may still go down: it keeps cordon and slot"


def test_a_grant_that_no_agent_takes_is_told(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    granted(world, rollout)
    world.sim.agents.kill("n1")
    world.tick(5)
    assert "to take the reboot grant" in waiting_text(world, rollout)


def test_a_node_that_has_booted_waits_for_its_agent_by_name(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    step = granted(world, rollout)
    while world.node("n1").is_ready:
        world.tick(1)
    world.sim.agents.remove("n1")
    for _ in range(60):
        world.tick(10)
        if world.node("n1").boot_id != step.boot_id:
            break
    assert "has booted" in waiting_text(world, rollout)
    assert "agent" in waiting_text(world, rollout)


def test_a_kubelet_restart_that_does_not_end_is_told_with_its_deadline(make_world, monkeypatch):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, step_deadline_seconds=120))
    monkeypatch.setattr("agent.restarts._restarted", lambda node, grant: None)
    step = granted(world, rollout)
    world.tick(10)
    sentence = waiting_text(world, rollout)
    assert "took the grant" in sentence
    assert clock_time(step.deadline_at) in sentence
    world.run(rollout, seconds=300, step=10)
    assert "took the grant and did not restart the kubelet" in rollout.steps.get().error


def test_soaking_says_until_when_and_looks_at_the_node_all_the_time(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(HUGE), canary=0, soak_seconds=3600))
    step = world.until(rollout, "soaking")
    end = clock_time(step.entered_at + timedelta(seconds=3600))
    assert waiting_text(world, rollout) == f"Soaking n1 until {end}."
    world.tick(1000)
    assert waiting_text(world, rollout) == f"Soaking n1 until {end}."

    # Not Ready for a while in the middle of it: that is what soaking is there to see.
    world.sim.nodes.set_ready("n1", is_ready=False)
    world.look()
    world.slice(rollout)
    step.refresh_from_db()
    assert step.status == "failed"
    assert "soaking" in step.error


def test_a_time_on_another_day_names_the_day(clock):
    at = clock()
    assert clock_time(at) == f"{at:%H:%M:%S} UTC"
    assert clock_time(at + timedelta(days=3)) == f"{at + timedelta(days=3):%b %d, %H:%M} UTC"


def test_what_was_waited_for_is_not_said_once_it_is_over(world):
    rollout = world.started()
    world.slice(rollout)
    assert rollout.steps.filter(status__in=Step.ACTIVE).count() == 1
    rollout.steps.update(waiting_for="")  # it has just moved on; no worker has looked at it again
    set_waiting_sentence(rollout, "n1, applying: The agent has not answered.")

    progress.settle(rollout)

    rollout.refresh_from_db()
    assert rollout.waiting_for == "1 node in progress."


def test_a_worker_that_comes_late_says_nothing_of_a_rollout_that_has_ended(world):
    rollout = world.started()
    late = Rollout.objects.get(pk=rollout.pk)
    world.run(rollout)
    assert rollout.status == "succeeded"

    set_waiting_sentence(late, "n1, verifying: The agent has not answered.")

    rollout.refresh_from_db()
    assert (rollout.waiting_for, rollout.waiting_since) == ("", None)
