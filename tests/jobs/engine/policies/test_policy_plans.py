"""Plans of policy objects: one plan and one order with components, and one pool that owns each object."""

from __future__ import annotations

import pytest

from clusters.models import Pool
from common.errors import WrongState
from components.policies import policy_objects
from jobs.rollouts import rollout_actions
from simfleet.apiserver.callers import person
from tests.jobs.component_steps import step_of
from tests.jobs.conftest import World
from tests.jobs.policy_steps import (
    FIRST,
    PRIORITY,
    QUEUE,
    QUEUES,
    QUOTA,
    RESEARCH,
    SPACE,
    TEAM,
    blocks,
    edit,
    outcomes,
    plan_of,
    sentence,
    standing,
    there,
)

# ── one plan, one order, one status, and back ─────────────────────────────────────────────────────────────────────────


def test_settings_policies_and_components_go_there_and_back_in_one_rollout(world, releases):
    plan = plan_of(world, TEAM + QUEUE, "volcano", "cert-manager", settings={"vm.swappiness": "10"}, batch="100%")

    assert not blocks(plan)
    assert [(r.component, r.kind, r.requires, r.after) for r in plan.components.all()] == [
        (FIRST, "policies", [], []),
        ("cert-manager", "release", [], [FIRST]),
        ("volcano", "release", [], [FIRST]),
        (QUEUES, "policies", ["volcano"], []),
    ]
    assert (plan.summary["components"], plan.summary["policies"]) == (2, 4)
    assert [f["title"] for f in plan.findings if f["code"] == "namespace-stays"] == [
        "Namespace team-a stays when the plan is reverted"
    ]
    assert there(world, SPACE) is None, "a plan wrote something"

    rollout = world.run(world.started(plan))
    assert (rollout.status, set(outcomes(rollout).values())) == ("succeeded", {"succeeded"})
    assert there(world, QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "8"}
    assert there(world, RESEARCH)["spec"]["weight"] == 4
    assert step_of(rollout, "volcano").entered_at >= step_of(rollout, FIRST).entered_at
    assert step_of(rollout, FIRST).output[0] == "Namespace team-a is applied."
    with pytest.raises(WrongState, match="nothing to plan"):
        plan_of(world, TEAM + QUEUE, "volcano", "cert-manager", settings={"vm.swappiness": "10"})

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert (rollout.status, set(outcomes(rollout).values())) == ("reverted", {"reverted"})
    assert [there(world, ref) for ref in (QUOTA, PRIORITY, RESEARCH)] == [None] * 3
    assert there(world, SPACE), "what is in it is not ours to delete"
    assert releases.version("volcano") == ""
    assert step_of(rollout, FIRST).entered_at >= step_of(rollout, "volcano").entered_at
    assert world.value("n1") == "60"


def test_policies_alone_are_a_plan_and_a_change_goes_back_to_what_was_before(world):
    world.run(world.started(plan_of(world, TEAM)))
    plan = plan_of(world, TEAM, gpus=16)
    row = plan.components.get()
    assert [(o["change"], "-    requests.nvidia.com/gpu: '8'" in o["diff"]) for o in row.prepared["objects"]] == [
        ("same", False),
        ("same", False),
        ("changed", True),
    ]
    rollout = world.run(world.started(plan))
    assert there(world, QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "16"}

    rollout_actions.revert(rollout, step=step_of(rollout, FIRST), by=world.operator)
    world.run(rollout)
    assert there(world, QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "8"}
    assert there(world, PRIORITY), "which an earlier rollout made"


def test_a_component_requires_the_namespace_it_lives_in(world, releases):
    text = "\n  - {apiVersion: v1, kind: Namespace, metadata: {name: volcano-system}}"
    world.sim.faults.add("refuse", verb="patch", resource="namespaces", name="volcano-system")
    plan = plan_of(world, text + TEAM, "volcano", "cert-manager")
    assert blocks(plan) == ["policy-refused"]
    world.sim.faults.clear()

    plan = plan_of(world, text + TEAM, "volcano", "cert-manager")
    assert plan.components.get(component="volcano").requires == [FIRST]
    world.sim.faults.add("refuse", verb="patch", resource="namespaces", name="volcano-system")
    rollout = world.run(world.started(plan))

    assert outcomes(rollout) == {FIRST: "failed", "volcano": "queued", "cert-manager": "succeeded"}
    assert step_of(rollout, "volcano").waiting_for == "Waits for policy objects, which failed."
    assert rollout.status == "stopped"
    assert "Stopped: 1 group of policy objects failed." in rollout.waiting_for
    world.sim.faults.clear()
    rollout_actions.retry_failed(rollout, by=world.operator)
    assert world.run(rollout).status == "succeeded"


def test_queues_wait_for_the_component_that_brings_their_kind(world, releases):
    releases.broken["volcano"] = "no image"
    rollout = world.run(world.started(plan_of(world, TEAM + QUEUE, "volcano")))

    assert outcomes(rollout) == {FIRST: "succeeded", "volcano": "failed", QUEUES: "queued"}
    assert step_of(rollout, QUEUES).waiting_for == "Waits for volcano, which failed."
    releases.broken.clear()
    rollout_actions.retry_failed(rollout, by=world.operator)
    assert world.run(rollout).status == "succeeded"


# ── one owning assignment ─────────────────────────────────────────────────────────────────────────────────────────────


def _other_pool(world: World) -> None:
    world.run(world.started(plan_of(world, TEAM)))
    world.pool = Pool.objects.create(cluster=world.cluster, name="infer", selector={"matchLabels": {"pool": "infer"}})
    world.sim.add_node("i1", gpus=8, labels={"pool": "infer"})
    world.observe()


def test_what_another_pool_wants_otherwise_blocks_and_the_very_same_is_left_to_it(world):
    _other_pool(world)
    assert blocks(plan_of(world, TEAM, gpus=16, settings={"vm.swappiness": "10"})) == ["policy-owner"]

    more = "\n  - {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: inference}, value: 20000}"
    plan = plan_of(world, TEAM + more)
    assert [o["manifest"]["metadata"]["name"] for o in plan.components.get().prepared["objects"]] == ["inference"]
    assert [f["code"] for f in plan.findings if f["code"].startswith("policy")] == ["policy-shared"] * 3
    rollout = world.run(world.started(plan))
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert (rollout.status, bool(there(world, PRIORITY))) == ("reverted", True)

    left = plan_of(world, TEAM, settings={"vm.swappiness": "10"})
    assert left.components.get().left_out == "atlas / train has the same objects and writes them."


def test_the_pool_that_brought_an_object_goes_on_to_decide_about_it(world):
    train = world.pool
    _other_pool(world)
    world.run(world.started(plan_of(world, TEAM, settings={"vm.swappiness": "10"})))
    infer, world.pool = world.pool, train

    plan = plan_of(world, TEAM, gpus=16)
    assert (blocks(plan), [f["code"] for f in plan.findings if f["severity"] == "warn"]) == ([], ["policy-otherwise"])
    world.run(world.started(plan))
    assert there(world, QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "16"}
    assert standing(world) == "compliant", "with what its owner wants, though infer's target stands longer by now"

    world.pool = infer
    assert blocks(plan_of(world, TEAM, gpus=8, settings={"vm.swappiness": "20"})) == ["policy-owner"]
    world.pool = train
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}))))
    world.pool = infer
    assert not blocks(plan_of(world, TEAM, gpus=8, settings={"vm.swappiness": "20"})), "train wants it no more"


def test_what_another_pool_brought_since_the_plan_is_neither_taken_nor_removed(world):
    infer = Pool.objects.create(cluster=world.cluster, name="infer", selector={"matchLabels": {"pool": "infer"}})
    world.sim.add_node("i1", gpus=8, labels={"pool": "infer"})
    world.observe()
    train, world.pool = world.pool, infer
    late = world.approved(plan_of(world, TEAM))
    world.pool = train
    world.run(world.started(plan_of(world, TEAM)))

    rollout = world.run(rollout_actions.start(late, by=world.operator))
    assert step_of(rollout, FIRST).error == "Namespace team-a was changed since the plan; plan again"
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert (rollout.status, step_of(rollout, FIRST).output[-1]) == (
        "reverted",
        "Namespace team-a is not ours any more.",
    )
    assert there(world, QUOTA)["metadata"]["labels"] == {policy_objects.MARK: f"pool-{train.pk}"}


def test_what_is_not_wanted_any_more_stays_and_is_named(world):
    world.run(world.started(plan_of(world, TEAM)))
    plan = world.plan(world.revision({"vm.swappiness": "10"}))

    dropped = [f["title"] for f in plan.findings if f["code"] == "policy-dropped"]
    assert len(dropped) == 3
    assert "Namespace/team-a" in dropped[0]
    world.run(world.started(plan))
    assert there(world, QUOTA)


def test_what_a_rollout_brought_is_compliant_and_what_somebody_changes_of_it_drifted(world):
    world.run(world.started(plan_of(world, TEAM)))
    assert standing(world) == "compliant"
    edit(world, "resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "64"}}}, "team-a")
    assert standing(world) == "drifted"


def test_what_a_rollout_has_yet_to_bring_is_pending_and_what_somebody_took_away_afterwards_drifted(world, releases):
    rollout = world.started(plan_of(world, TEAM + QUEUE, "volcano"))
    while outcomes(rollout)[FIRST] != "succeeded":
        world.slice(rollout)
        world.tick(1)
    assert outcomes(rollout)["queues of volcano"] == "queued"
    assert standing(world) == "pending"
    assert sentence(world) == f"R-{rollout.number} is at work here. Queue research is not there yet."

    world.run(rollout)
    assert standing(world) == "compliant"
    world.sim.api.delete(person("alice"), "resourcequotas", "gpus", "team-a")
    assert standing(world) == "drifted"
    assert sentence(world) == "ResourceQuota team-a/gpus is gone."

    again = world.started(plan_of(world, TEAM + QUEUE.replace("4", "5"), "volcano"))
    assert (standing(world), "ResourceQuota team-a/gpus is not there yet" in sentence(world)) == ("pending", True)
    world.sim.api.delete(person("alice"), "priorityclasses", "training")
    assert standing(world) == "pending"
    assert "PriorityClass training is gone" in sentence(world), "which no rollout is about to make"
    assert again.is_live
