"""Law 10 for components: revert, abort, pause and retry."""

from __future__ import annotations

import pytest

from common.errors import WrongState
from jobs.engine import component_runner, reconcile
from jobs.models import Rollout
from jobs.rollouts import rollout_actions
from tests.jobs.component_steps import outcomes, plan_of, step_of


def test_a_revert_puts_components_back_in_the_other_order(world, releases):
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager", settings={"vm.swappiness": "10"})))
    releases.writes.clear()

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "reverted"
    assert releases.writes == [("kueue", ""), ("cert-manager", "")]
    assert set(outcomes(rollout).values()) == {"reverted"}
    assert world.value("n1") == "60"


def test_a_revert_of_an_upgrade_brings_the_earlier_version_back(world, releases):
    world.run(world.started(plan_of(world, "cert-manager@1.0.0")))
    rollout = world.run(world.started(plan_of(world, "cert-manager@2.0.0")))
    assert releases.version("cert-manager") == "2.0.0"

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert (rollout.status, releases.version("cert-manager")) == ("reverted", "1.0.0")


def test_a_component_that_others_require_does_not_go_back_alone(world, releases):
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))

    with pytest.raises(WrongState, match="kueue requires cert-manager"):
        rollout_actions.revert(rollout, by=world.operator, step=step_of(rollout, "cert-manager"))

    rollout_actions.revert(rollout, by=world.operator, step=step_of(rollout, "kueue"))
    world.run(rollout)
    assert outcomes(rollout) == {"cert-manager": "succeeded", "kueue": "reverted"}


def test_what_could_not_be_put_back_holds_what_it_requires(world, releases):
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))
    releases.broken["kueue"] = "its finalizer does not end"
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=60)

    assert outcomes(rollout) == {"cert-manager": "held", "kueue": "failed"}
    assert "kueue, which requires it" in step_of(rollout, "cert-manager").error
    releases.broken.clear()
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.status == "reverted"


def test_node_settings_go_back_after_the_component_that_came_after_them(world, releases):
    releases.after["gpu-operator"] = ("nodes",)
    plan = plan_of(world, "gpu-operator", settings={"vm.swappiness": "10"}, canary=0, batch="100%")
    rollout = world.run(world.started(plan))
    releases.not_ready["gpu-operator"] = "a pod is ending"
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=30)

    assert set(rollout.steps.of_nodes().values_list("status", flat=True)) == {"queued"}
    releases.not_ready.clear()
    assert world.run(rollout).status == "reverted"


def test_an_abort_that_puts_back_ends_helm_and_turns_the_step(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    reconcile.run(rollout.pk)
    step = step_of(rollout, "cert-manager")
    stopped: list[bool] = []
    real = component_runner.ClaimRenewal.__enter__

    def entered(self):
        beats.append(self)
        return real(self)

    beats: list[component_runner.ClaimRenewal] = []

    def abort(stop):
        rollout_actions.abort(Rollout.objects.get(pk=rollout.pk), by=world.operator, in_flight="revert")
        assert not stop()
        beats[0].beat()
        stopped.append(stop())

    releases.during["cert-manager"] = abort
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_runner.ClaimRenewal, "__enter__", entered)
        component_runner.carry_out(step.pk)
    del releases.during["cert-manager"]

    assert stopped == [True]
    assert releases.there["cert-manager"].pending == "pending-install"
    rollout.refresh_from_db()
    world.run(rollout)
    assert outcomes(rollout) == {"cert-manager": "reverted", "kueue": "skipped"}
    assert rollout.status == "cancelled"
    assert (releases.version("cert-manager"), releases.there["cert-manager"].pending) == ("", "")


def test_an_abort_that_lets_finish_lets_helm_finish(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    reconcile.run(rollout.pk)
    releases.during["cert-manager"] = lambda stop: rollout_actions.abort(
        Rollout.objects.get(pk=rollout.pk), by=world.operator
    )
    component_runner.carry_out(step_of(rollout, "cert-manager").pk)
    rollout.refresh_from_db()
    world.run(rollout)

    assert outcomes(rollout) == {"cert-manager": "succeeded", "kueue": "skipped"}
    assert rollout.status == "cancelled"


def test_an_abort_passes_over_what_helm_has_not_begun(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    rollout_actions.abort(Rollout.objects.get(pk=rollout.pk), by=world.operator)
    reconcile.run(rollout.pk)
    assert outcomes(rollout) == {"cert-manager": "skipped"}

    rollout.refresh_from_db()
    world.run(rollout)
    assert rollout.status == "cancelled"
    assert not releases.runs


def test_a_pause_lets_helm_finish_and_starts_no_other(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    reconcile.run(rollout.pk)
    rollout_actions.pause(Rollout.objects.get(pk=rollout.pk), by=world.operator)
    for _ in range(5):
        world.slice(rollout)
        world.tick(5)

    assert outcomes(rollout) == {"cert-manager": "succeeded", "kueue": "queued"}
