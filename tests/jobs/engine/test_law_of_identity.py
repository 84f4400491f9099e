"""Law 9: a node that was deleted, replaced or rebooted ends its step clearly."""

from __future__ import annotations

import pytest

from clusters.models import Cluster, Node
from jobs.engine import reconcile
from jobs.models import Rollout, Slot

STAGES = ["queued", "cordoning", "draining", "applying", "restarting", "verifying", "returning"]
ALL = {"vm.swappiness": "10", "vm.max_map_count": ">= 262144", "cmdline.iommu": "pt"}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("what", ["delete", "replace"])
def test_a_node_that_goes_away_ends_its_step_clearly(make_world, stage, what):
    world = make_world(nodes=2)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=2, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(ALL), canary=0, order="name", batch="1"))
    _reach(world, rollout, stage)

    getattr(world.sim.nodes, what)("n1")
    world.look()
    for _ in range(40):
        world.slice(rollout)
        if rollout.steps.get(node_name="n1").status == "failed":
            break
        world.tick(5)

    step = rollout.steps.get(node_name="n1")
    assert step.status == "failed", (stage, step.status, step.waiting_for)
    assert any(word in step.error for word in ("deleted", "replaced", "another node", "gone"))
    assert not Slot.objects.filter(node=step.node).exists()
    if what == "replace":
        assert not world.sim.node("n1")["spec"].get("unschedulable"), "the new node is not ours to touch"


@pytest.mark.parametrize("stage", ["applying", "verifying"])
def test_a_foreign_reboot_ends_the_step_clearly(make_world, stage):
    world = make_world(nodes=1)
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(world.plan(canary=0))
    world.until(rollout, "verifying")

    world.sim.nodes.reboot("n1")
    world.tick(400)
    world.slice(rollout)

    step = rollout.steps.get()
    assert step.status == "failed"
    assert "rebooted" in step.error


def _reach(world, rollout: Rollout, stage: str) -> None:
    """Stop as soon as the first node's step is in this stage, one transition a slice."""
    for _ in range(300):
        step = rollout.steps.get(node_name="n1")
        if step.status == stage:
            return
        reconcile.advance(rollout.pk)
        if rollout.steps.get(node_name="n1").status == step.status:
            world.tick(5)
    raise AssertionError(f"never {stage}: {step.status} {step.waiting_for} {step.error}")


def test_nodes_are_never_created(world):
    world.run(world.started(world.plan(world.revision(ALL))), seconds=3000, step=10)
    assert not [e for e in world.sim.audit if e.resource == "nodes" and e.verb == "create" and "setpoint" in e.user]
    assert Node.objects.count() == 3
    assert Cluster.objects.count() == 1
