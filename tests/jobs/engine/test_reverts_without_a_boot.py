"""A revert reboots a node only where its agent waits for a boot."""

from __future__ import annotations

from jobs.rollouts import rollout_actions

REBOOT = {"cmdline.iommu": "pt"}


def test_a_revert_of_an_argument_that_no_boot_has_had_reboots_nothing(make_world):
    world = make_world(nodes=1)
    kernel = world.sim.nodes.machine("n1").kernel
    kernel.update_grub = lambda: None  # as a node that came back with the arguments from before
    rollout = world.run(world.started(world.plan(world.revision(REBOOT), canary=0, batch="1")), seconds=4000, step=10)
    step = rollout.steps.get()
    assert (step.status, kernel.boot_id == step.boot_id) == ("failed", False)
    boot = kernel.boot_id

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=10)

    assert rollout.status == "reverted", rollout.waiting_for
    assert kernel.boot_id == boot
