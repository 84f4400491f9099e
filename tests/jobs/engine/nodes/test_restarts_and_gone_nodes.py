"""Found on the real control plane: grants and boots that cross each other, and slots whose node is no more."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.inventory import store
from clusters.models import Cluster
from common.clock import now
from contract.nodetuning import Spec
from jobs.engine import reconcile
from jobs.models import Step
from jobs.rollouts import rollout_actions
from tests.jobs.conftest import World

HUGE = {"hugepages-2Mi": "64"}
REBOOT = {"cmdline.iommu": "pt"}


def test_a_boot_that_ended_before_the_grant_is_not_followed_by_another_restart(make_world):
    world: World = make_world(nodes=1)
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(world.plan(world.revision(HUGE), canary=0))
    world.until(rollout, "restarting")

    world.sim.nodes.reboot("n1")
    world.sim.agents.restart("n1", "normal")
    world.tick(400)
    world.slice(rollout)

    step = rollout.steps.get()
    assert (step.status, step.granted_at) == ("failed", None)
    assert "rebooted meanwhile, not by Setpoint" in step.error
    assert not world.sim.tuning("n1")["spec"].get("restart")


class Killed(BaseException):
    """kill -9 of the worker."""


def test_a_worker_killed_after_the_grant_finds_the_reboot_that_it_granted(make_world, monkeypatch):
    world: World = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    real = world.fleet.tune

    def killed_after_the_grant(node: str, spec: Spec) -> dict[str, Any]:
        answer = real(node, spec)
        if spec.restart is not None:
            raise Killed
        return answer

    monkeypatch.setattr(world.fleet, "tune", killed_after_the_grant)
    monkeypatch.setattr(reconcile.claims, "release", lambda token: None)
    with pytest.raises(Killed):
        world.until(rollout, "succeeded")
    monkeypatch.setattr(world.fleet, "tune", real)

    world.sim.tick(400)  # the node has rebooted and is back before a worker takes the step up again
    # The watch tells of the node first: what the agent said of the grant arrives later.
    store.observe_nodes(world.cluster, world.fleet.list("nodes").items, complete=True, at=now())
    Cluster.objects.update(observed_at=now())
    world.slice(rollout)
    assert rollout.steps.get().status == "restarting", rollout.steps.get().error
    world.run(rollout)

    assert rollout.status == "succeeded", rollout.steps.get().error
    assert world.sim.node("n1")["status"]["nodeInfo"]["bootID"] != rollout.steps.get().boot_id


def _failed_and_deleted(make_world: Any, **strategy: Any) -> tuple[World, Any]:
    """Two nodes, a budget of one; the first has failed after its disruption, keeps its slot, and is deleted then."""
    world: World = make_world(nodes=2)
    world.sim.agents.restart("n1", "hanging")
    how = {"canary": 0, "batch": "1", "order": "name", "step_deadline_seconds": 10, **strategy}
    rollout = world.started(world.plan(world.revision(HUGE), **how))
    world.until(rollout, "failed")
    assert world.cluster.slots.filter(step__node_name="n1").exists()
    world.sim.nodes.delete("n1")
    world.look()
    return world, rollout


def test_a_deleted_node_gives_its_place_back_whatever_became_of_its_step(make_world):
    world, rollout = _failed_and_deleted(make_world, max_failures=1)

    world.run(rollout)

    assert dict(rollout.steps.values_list("node_name", "status"))["n2"] == Step.Status.SUCCEEDED


def test_a_failed_step_of_a_deleted_node_can_be_skipped(make_world):
    world, rollout = _failed_and_deleted(make_world)

    rollout_actions.skip(rollout, rollout.steps.get(node_name="n1"), by=world.operator)
    world.run(rollout)

    assert dict(rollout.steps.values_list("node_name", "status")) == {"n1": "skipped", "n2": "succeeded"}
    assert rollout.status == "succeeded"
    assert not world.cluster.slots.exists()
