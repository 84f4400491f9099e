"""The engine's laws for policy objects: in one plan and one order with components and nodes, approved, and reverted."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kube import managed_fields
from common.errors import WrongState
from jobs.engine import claims, component_runner, reconcile
from jobs.models import PlanComponent
from jobs.planning import digests
from jobs.rollouts import rollout_actions
from simfleet.apiserver.callers import person
from tests.jobs.component_steps import step_of
from tests.jobs.conftest import World
from tests.jobs.policy_steps import (
    FIRST,
    GPUS_FIELD,
    PRIORITY,
    QUOTA,
    SPACE,
    TEAM,
    blocks,
    edit,
    plan_of,
    standing,
    there,
)


class Killed(BaseException):
    """Kill -9 in the middle of a step."""


def test_the_digest_covers_policies_and_an_altered_row_does_not_start(world):
    plan = world.approved(plan_of(world, TEAM))
    row = plan.components.get()
    for fields in ({"digest": "sha256:" + "0" * 64}, {"requires": ["volcano"]}, {"kind": "release"}):
        PlanComponent.objects.filter(pk=row.pk).update(**fields)
        assert digests.plan_digest(plan) != plan.digest, fields
        PlanComponent.objects.filter(pk=row.pk).update(**{name: getattr(row, name) for name in fields})
    assert digests.plan_digest(plan) == plan.digest

    row.prepared["objects"][2]["manifest"]["spec"]["hard"] = {"requests.nvidia.com/gpu": "9999"}
    row.save()
    with pytest.raises(WrongState, match="not what was approved"):
        rollout_actions.start(plan, by=world.operator)


def _edited(world: World, gpus: str = "3") -> None:
    edit(world, "resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": gpus}}}, "team-a")


def _hard(world: World) -> tuple[str, list[str]]:
    """Return the GPUs of the quota, and the holders of the field."""
    live = there(world, QUOTA) or {}
    return live["spec"]["hard"]["requests.nvidia.com/gpu"], managed_fields.holders(live, ("spec", "hard", GPUS_FIELD))


def test_what_somebody_changed_by_hand_is_taken_back_by_an_approved_plan_and_put_back_with_it(world):
    world.run(world.started(plan_of(world, TEAM)))
    _edited(world)
    assert standing(world) == "drifted"
    plan = plan_of(world, TEAM)

    assert not blocks(plan)
    [warning] = [f for f in plan.findings if f["severity"] == "warn"]
    assert warning["title"] == "1 field of ResourceQuota team-a/gpus is taken from kubectl-edit"
    assert warning["detail"].startswith('spec.hard["requests.nvidia.com/gpu"] is 3, held by kubectl-edit since 20')
    assert (plan.summary["policies"], plan.summary["takes"]) == (1, 1)
    assert _hard(world) == ("3", ["kubectl-edit"]), "a plan wrote something"

    rollout = world.run(world.started(plan))
    assert (rollout.status, _hard(world), standing(world)) == ("succeeded", ("8", ["setpoint"]), "compliant")
    taken = 'ResourceQuota team-a/gpus is applied, and takes spec.hard["requests.nvidia.com/gpu"] from kubectl-edit.'
    assert step_of(rollout, FIRST).output[-1] == taken

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert (rollout.status, _hard(world), standing(world)) == ("reverted", ("3", ["setpoint"]), "drifted")
    assert "is 3 again, as kubectl-edit had it; Setpoint holds it from now on." in " ".join(
        step_of(rollout, FIRST).output
    )
    repair = plan_of(world, TEAM)
    assert (repair.summary["takes"], [f["code"] for f in repair.findings if f["severity"] == "warn"]) == (0, [])


def test_the_digest_covers_what_is_taken_and_from_whom(world):
    world.run(world.started(plan_of(world, TEAM)))
    _edited(world)
    plan = world.approved(plan_of(world, TEAM))
    for change in ({"manager": "bob"}, {"there": "4"}, {"path": ["f:spec"]}):
        row = plan.components.get()
        [take] = next(policy["takes"] for policy in row.prepared["objects"] if policy.get("takes"))
        take |= change
        row.save()
        with pytest.raises(WrongState, match="not what was approved"):
            rollout_actions.start(plan, by=world.operator)
        PlanComponent.objects.filter(pk=row.pk).update(prepared=plan_of(world, TEAM).components.get().prepared)
    assert rollout_actions.start(plan, by=world.operator)


@pytest.mark.parametrize("how", ["another value", "another manager", "put back", "kept by Argo CD"])
def test_what_is_not_as_the_plan_showed_it_is_not_taken(world, how):
    world.run(world.started(plan_of(world, TEAM)))
    _edited(world)
    priority = TEAM.replace("value: 10000", "value: 10000, description: Jobs")
    rollout = world.started(plan_of(world, priority))
    change: dict[str, Any] = {"spec": {"hard": {GPUS_FIELD: {"another value": "5", "put back": "8"}.get(how, "3")}}}
    if how == "kept by Argo CD":
        change = {"metadata": {"labels": {"argocd.argoproj.io/instance": "teams"}}}
    if how == "another manager":
        edit(world, "resourcequotas", "gpus", {"spec": {"hard": {GPUS_FIELD: "4"}}}, "team-a")
    who = "bob" if how == "another manager" else ""
    world.sim.api.patch(person("bob"), "resourcequotas", "gpus", change, "team-a", manager=who)
    before = there(world, QUOTA)

    world.run(rollout)

    step = step_of(rollout, FIRST)
    reasons = {
        "another value": "is 5, held by kubectl-edit by now, and the plan showed 3, held by kubectl-edit; plan again",
        "another manager": "is 3, held by bob by now, and the plan showed 3, held by kubectl-edit; plan again",
        "put back": "is 8, held by kubectl-edit by now, and the plan showed 3, held by kubectl-edit; plan again",
        "kept by Argo CD": "Argo CD's Application teams keeps it.",
    }
    assert (step.status, reasons[how] in step.error) == ("failed", True), step.error
    assert there(world, QUOTA) == before
    assert "description" not in (there(world, PRIORITY) or {}), "something was written although the plan was stale"


def test_what_a_controller_holds_blocks_the_plan_and_says_what_to_do(world):
    world.run(world.started(plan_of(world, TEAM)))
    change = {"spec": {"hard": {GPUS_FIELD: "3"}}}
    world.sim.api.patch(person("x"), "resourcequotas", "gpus", change, "team-a", manager="quota-controller")
    plan = plan_of(world, TEAM, gpus=16)

    assert blocks(plan) == ["policy-conflict"]
    detail = next(f["detail"] for f in plan.findings if f["severity"] == "block")
    assert detail.endswith("Change its input, or set the same value in the profile.")
    assert plan.components.get().left_out == "Nothing is done with them: one of them blocks this plan."
    assert _hard(world) == ("3", ["quota-controller"])


def test_killed_after_a_field_was_taken_the_next_attempt_goes_on(world, monkeypatch):
    world.run(world.started(plan_of(world, TEAM)))
    _edited(world)
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)
    pk, real = step_of(rollout, FIRST).pk, world.fleet.apply_policy

    def apply(manifest: Any, **how: Any) -> Any:
        answer = real(manifest, **how)
        if how.get("force_at") and not how.get("dry_run"):
            raise Killed
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(world.fleet, "apply_policy", apply)
        patch.setattr(claims, "release", lambda token: None)
        with pytest.raises(Killed):
            component_runner.carry_out(pk)
    assert _hard(world) == ("8", ["setpoint"])
    world.clock.forward(claims.settings.SETPOINT_LEASE_SECONDS + 1)
    world.look()
    assert world.run(rollout).status == "succeeded"
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert _hard(world) == ("3", ["setpoint"])


def test_what_changed_since_the_plan_leaves_every_object_as_it_is(world):
    rollout = world.started(plan_of(world, TEAM))
    manifest = {"metadata": {"name": "training"}, "value": 10000}
    world.sim.api.create(person("alice"), "priorityclasses", manifest)

    world.run(rollout)

    assert step_of(rollout, FIRST).error == "another party made PriorityClass training since the plan; plan again"
    assert there(world, SPACE) is None, "something was written although the plan was stale"
    assert managed_fields.fields(there(world, PRIORITY)) == {}


def test_what_another_rollout_of_ours_changed_since_the_plan_is_not_overwritten(world):
    world.run(world.started(plan_of(world, TEAM)))
    stale = world.approved(plan_of(world, TEAM, gpus=16))
    world.run(world.started(plan_of(world, TEAM, gpus=32)))

    rollout = world.run(rollout_actions.start(stale, by=world.operator))

    assert step_of(rollout, FIRST).error == "ResourceQuota team-a/gpus was changed since the plan; plan again"
    assert there(world, QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "32"}


def test_a_later_rollout_of_the_same_objects_keeps_an_earlier_one_from_going_back(world):
    first = world.run(world.started(plan_of(world, TEAM)))
    world.run(world.started(plan_of(world, TEAM, gpus=16)))

    with pytest.raises(WrongState, match="later rollout changed policy objects"):
        rollout_actions.revert(first, step=step_of(first, FIRST), by=world.operator)


def test_two_rollouts_of_one_pool_never_apply_at_once(world):
    rollout = world.started(plan_of(world, TEAM, batch="100%", canary=0))
    for _ in range(5):  # no worker comes for the objects, and the nodes are done
        reconcile.run(rollout.pk)
        world.tick(5)
    assert not rollout.steps.of_nodes().filter(is_live=True).exists()

    with pytest.raises(WrongState, match=r"R-1 \(policy objects\) works on some of these"):
        world.started(plan_of(world, TEAM, gpus=16))
