"""Fields of the kubelet's configuration and limits of services, from plan to revert."""

from __future__ import annotations

import pytest

from clusters import objects
from jobs.diffs.changes import Disruption
from jobs.rollouts import rollout_actions
from profiles.catalog import known_settings
from tests.jobs.engine.nodes.test_taints import job, tainted

PIDS = {"kubelet.podPidsLimit": "4096", "kubelet.maxPods": "250"}
MEMLOCK = {"containerd.LimitMEMLOCK": "infinity"}


@pytest.fixture(autouse=True)
def _observed(make_world, monkeypatch):
    """The tests of the engine observe few keys; these are more, and it is set after theirs."""
    monkeypatch.setattr(known_settings, "observable_keys", lambda: ("vm.swappiness", *PIDS, *MEMLOCK))


def setpoints(machine):
    """Files of Setpoint's on the node's disk."""
    return {path for path in machine.kernel.disk if path.startswith("/etc") and "setpoint" in path}


def test_a_kubelet_field_ends_with_one_restart_and_goes_back_with_another(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    before, runs, boot = dict(machine.kubelet_config), machine.kubelet_runs, machine.kernel.boot_id
    plan = world.plan(world.revision(PIDS), canary=0)
    assert plan.worst_class == Disruption.KUBELET_RESTART

    rollout = world.run(world.started(plan), step=5)

    assert rollout.status == "succeeded", rollout.steps.get().error or rollout.waiting_for
    assert (machine.kubelet_config["podPidsLimit"], machine.kubelet_config["maxPods"]) == ("4096", "250")
    assert machine.kubelet_runs == runs + 1
    assert world.node("n1").allocatable["pods"] == "250"

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=5)

    assert rollout.status == "reverted", rollout.steps.get().error or rollout.waiting_for
    assert machine.kubelet_config == before
    assert setpoints(machine) == set()
    assert machine.kernel.boot_id == boot


def test_a_limit_of_containerd_drains_restarts_it_and_goes_back(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    limits, boot = machine.kernel.read("/proc/811/limits"), machine.kernel.boot_id
    plan = world.plan(world.revision({**MEMLOCK, **PIDS}), canary=0)
    assert plan.worst_class == Disruption.CONTAINERD_RESTART
    rollout = world.started(plan)
    world.until(rollout, "restarting")
    assert objects.is_cordoned(world.sim.node("n1"))

    world.run(rollout, seconds=4000, step=5)

    assert rollout.status == "succeeded", rollout.steps.get().error or rollout.waiting_for
    assert "unlimited            unlimited" in machine.kernel.read("/proc/811/limits")
    assert machine.kubelet_config["podPidsLimit"] == "4096", "the one restart is the kubelet's, too"
    assert not objects.is_cordoned(world.sim.node("n1"))

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=5)

    assert rollout.status == "reverted", rollout.steps.get().error or rollout.waiting_for
    assert machine.kernel.read("/proc/811/limits") == limits
    assert setpoints(machine) == set()
    assert machine.kernel.boot_id == boot


@pytest.mark.parametrize("flags", ["--config=/var/lib/kubelet/config.yaml", "--config-dir=/opt/kubelet.d"])
def test_a_node_whose_kubelet_reads_no_drop_ins_fails_with_what_to_add(make_world, flags):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    machine.kernel.set("/proc/923/cmdline", f"/usr/bin/kubelet\0{flags}\0")

    rollout = world.run(world.started(world.plan(world.revision(PIDS), canary=0)), step=5)

    step = rollout.steps.get()
    assert step.status == "failed"
    assert "--config-dir" in step.error
    assert "/etc/kubernetes/kubelet.conf.d" in step.error
    assert setpoints(machine) == set()


def test_a_kubelet_that_was_restarted_with_another_value_meanwhile_is_left_alone(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    rollout = world.started(world.plan(world.revision(PIDS), canary=0))
    machine.kernel.store("/var/lib/kubelet/config.yaml", "maxPods: 99\n")
    world.tick(2)
    machine.restart_kubelet()

    world.run(rollout, step=5)

    assert rollout.steps.get().status != "succeeded"
    assert "kubelet.maxPods" in rollout.steps.get().error + rollout.waiting_for
    assert setpoints(machine) == set()


def test_a_field_beside_a_taint_that_drains_still_gets_its_restart(make_world):
    """The most disruptive change of the step is the drain, and a drain restarts nothing."""
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    job(world, "goes", "n1")
    plan = tainted(world, settings=PIDS)
    assert plan.worst_class == Disruption.DRAIN

    rollout = world.run(world.started(plan), seconds=4000, step=5)

    assert rollout.status == "succeeded", rollout.steps.get().error or rollout.waiting_for
    assert machine.kubelet_config["podPidsLimit"] == "4096"
