"""A check and a step of a rollout never have a node at the same time, and the rollout goes first."""

from __future__ import annotations

import pytest

from clusters.models import Cluster
from gpus.models import CheckRun
from gpus.services.checks import runs
from jobs.models import Rollout, Step

pytestmark = pytest.mark.django_db
Status, Outcome = CheckRun.Status, CheckRun.Outcome


def is_worked_on(name: str) -> bool:
    return Step.objects.filter(node_name=name, is_live=True).exclude(status=Step.Status.QUEUED).exists()


@pytest.mark.parametrize("moment", [Status.WAITING, Status.STARTING, Status.RUNNING, Status.ENDING])
def test_a_rollout_that_comes_at_any_moment_gets_the_node_and_never_shares_it(checking, moment):
    world = checking.world
    checking.prints("", seconds=3000)
    run = checking.until(checking.start("n1")[0], Status.RUNNING if moment == Status.ENDING else moment)
    if moment == Status.ENDING:
        CheckRun.objects.update(status=Status.ENDING, outcome=Outcome.UNKNOWN)
    rollout = world.started()
    for _ in range(400):
        for _ in range(4):  # the engine is faster than the run, which still has its pod
            world.slice(rollout)
            world.tick(0.2)
            assert not (is_worked_on("n1") and checking.pods()), "the step began beside the check"
        checking.step(1)
        if rollout.status == Rollout.Status.SUCCEEDED:
            break
    assert rollout.status == Rollout.Status.SUCCEEDED
    assert world.value("n1") == "10"
    run.refresh_from_db()
    if moment in (Status.STARTING, Status.RUNNING):
        assert run.outcome in (Outcome.NOT_RUN, Outcome.UNKNOWN)
        assert "goes first" in run.reason


def test_a_check_waits_while_a_rollout_has_the_node(checking):
    world = checking.world
    rollout = world.started()
    (run,) = checking.start("n1")
    checking.slice()
    run.refresh_from_db()
    assert (run.status, run.reason) == (Status.WAITING, f"{rollout} has the node, and goes first.")
    world.run(rollout)
    assert checking.ended(run).outcome == Outcome.PASSED


def test_the_step_says_what_it_waits_for(checking):
    checking.prints("", seconds=3000)
    checking.until(checking.start("n1")[0], Status.RUNNING)
    rollout = checking.world.started()
    for _ in range(3):
        checking.world.slice(rollout)
        checking.world.tick(1)
    step = rollout.steps.get(node_name="n1")
    assert step.status == Step.Status.QUEUED
    assert "DCGM diagnostic, medium" in step.waiting_for


def test_a_step_that_comes_between_the_look_and_the_claim_is_seen_before_the_pod(checking, monkeypatch):
    """The run found its node free, and a rollout starts before the run says that it has it."""
    real, made = runs._takes_slot, []

    def take(run):
        made.append(checking.world.started())
        return real(run)

    monkeypatch.setattr(runs, "_takes_slot", take)
    (run,) = checking.start("n1")
    Cluster.objects.update(budget=3)
    checking.slice()
    monkeypatch.undo()
    run.refresh_from_db()
    assert run.status == Status.STARTING
    checking.slice()
    run.refresh_from_db()
    assert run.status == Status.ENDING
    assert checking.pods() == []
