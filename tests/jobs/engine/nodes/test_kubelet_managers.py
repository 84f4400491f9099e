"""The kubelet's resource managers, from plan to revert: a drain, one restart, and a way back where that fails."""

from __future__ import annotations

import pytest

from clusters import objects
from clusters.models import Node
from contract.resource_managers import CPU_POLICY, CPUS, FACTS, FLAGS, MEMORY, MEMORY_POLICY, OPTION
from jobs.diffs.changes import Disruption
from jobs.rollouts import rollout_actions
from profiles.catalog import known_settings
from tests.jobs.engine.nodes.test_services import setpoints

STATIC = {CPU_POLICY: "static", CPUS: "0-1"}
STATE = "/var/lib/kubelet/cpu_manager_state"


@pytest.fixture(autouse=True)
def _observed(make_world, monkeypatch):
    monkeypatch.setattr(known_settings, "observable_keys", lambda: ("vm.swappiness", *FLAGS, *FACTS))


def test_a_policy_drains_restarts_the_kubelet_once_and_goes_back(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    before, runs, boot = dict(machine.kubelet_config), machine.kubelet_runs, machine.kernel.boot_id
    plan = world.plan(world.revision(STATIC), canary=0)
    assert plan.worst_class == Disruption.DRAIN
    assert [f["code"] for f in plan.findings if "kubelet" in f["code"]] == ["kubelet-managers"]

    rollout = world.started(plan)
    world.until(rollout, "restarting")
    assert objects.is_cordoned(world.sim.node("n1"))
    world.run(rollout, seconds=4000, step=5)

    assert rollout.status == "succeeded", rollout.steps.get().error or rollout.waiting_for
    assert (machine.kubelet_config["cpuManagerPolicy"], machine.kubelet_runs) == ("static", runs + 1)
    assert "static" in machine.kernel.disk[STATE]

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=5)

    assert rollout.status == "reverted", rollout.steps.get().error or rollout.waiting_for
    assert (machine.kubelet_config, setpoints(machine)) == (before, set())
    assert "none" in machine.kernel.disk[STATE]
    assert machine.kernel.boot_id == boot


def test_a_kubelet_that_does_not_come_up_fails_the_step_and_is_as_before(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    before, machine.managers_break = dict(machine.kubelet_config), True

    rollout = world.run(world.started(world.plan(world.revision(STATIC), canary=0)), seconds=4000, step=5)

    assert rollout.steps.get().status == "failed"
    assert "did not come up" in rollout.steps.get().error
    assert (machine.kubelet_config, setpoints(machine)) == (before, set())
    assert "none" in machine.kernel.disk[STATE]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({CPU_POLICY: "static", CPUS: "0-1,999"}, "999"),
        ({MEMORY_POLICY: "Static", MEMORY: "0:memory=1Gi"}, "100Mi"),
        ({**STATIC, f"{OPTION}prefer-align-cpus-by-uncorecache": "true"}, "1.34"),
        ({CPU_POLICY: "static"}, CPUS),
    ],
)
def test_a_plan_is_blocked_by_what_only_the_nodes_tell(make_world, settings, why):
    world = make_world(nodes=1)
    Node.objects.update(kubelet="v1.33.2")

    plan = world.plan(world.revision(settings), canary=0)

    blocks = [finding for finding in plan.findings if finding["severity"] == "block"]
    assert [finding["code"] for finding in blocks] == ["kubelet-stopped"]
    assert why in blocks[0]["detail"]
