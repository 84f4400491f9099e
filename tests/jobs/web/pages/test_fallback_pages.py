"""A boot that fails with the new arguments comes back with the old ones, and the pages say so.

The agent is the product's own, on a simulated machine; tests/node has a kernel that panics, and GRUB itself.
"""

from __future__ import annotations

from clusters import objects
from jobs.rollouts import rollout_actions
from tests.jobs.pages import button, page, text_of

COMMAND_LINE = "/proc/cmdline"


def test_a_failed_boot_is_named_where_the_rollout_and_its_step_are_shown(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    machine.kernel.breaks_with = "iommu=pt"
    before, boot = machine.kernel.read(COMMAND_LINE), machine.kernel.boot_id

    rollout = world.run(world.started(world.plan(world.revision({"cmdline.iommu": "pt"}))), seconds=4000, step=5)

    step = rollout.steps.get()
    assert (step.status, machine.is_up, machine.kernel.boot_id != boot) == ("failed", True, True)
    assert machine.kernel.read(COMMAND_LINE).split() == [*before.split(), "setpoint.fallback=1"]
    assert objects.is_ready(world.sim.node("n1"))
    of_rollout = page(world.operator, f"/rollouts/{rollout}/")
    of_step = page(world.operator, f"/rollouts/{rollout}/steps/{step.pk}/")
    for html in (of_rollout, of_step):
        text = text_of(html)
        assert "cmdline.iommu" in text
        assert "did not come up" in text
        assert "booted with the arguments from before" in text
    assert "aria-disabled" not in button(of_rollout, "Retry failed")

    machine.kernel.breaks_with = ""
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=5)

    assert (rollout.status, rollout.steps.get().error) == ("succeeded", "")
    assert "did not come up" not in text_of(page(world.operator, f"/rollouts/{rollout}/")).partition("Log")[0]


def test_a_boot_with_the_new_arguments_is_called_no_fallback(make_world):
    world = make_world(nodes=1)

    rollout = world.run(world.started(world.plan(world.revision({"cmdline.iommu": "pt"}))), seconds=4000, step=5)

    assert rollout.status == "succeeded"
    assert "did not come up" not in text_of(page(world.operator, f"/rollouts/{rollout}/"))
