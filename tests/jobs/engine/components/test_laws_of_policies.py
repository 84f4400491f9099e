"""The engine's laws for policy objects: in one plan and one order with components and nodes, approved, and put back."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connection import registry
from clusters.fleet import FleetUnavailable, NotFound, ObjectRef
from clusters.kube import managed_fields
from clusters.models import Pool
from common.errors import WrongState
from compliance.checks import components
from compliance.models import ComponentStanding
from components.policies import policy_objects
from jobs import tasks
from jobs.engine import claims, component_runner, reconcile
from jobs.models import Plan, PlanComponent, Rollout
from jobs.planning import digests
from jobs.rollouts import freezes, rollout_actions
from profiles.document import schema
from simfleet.apiserver.callers import person
from tests.jobs.conftest import World
from tests.jobs.engine.components.test_laws_of_components import step_of
from tests.jobs.releases import Releases, wanted

FIRST, QUEUES = "policy objects", "queues of volcano"
TEAM = """
  - {apiVersion: v1, kind: Namespace, metadata: {name: team-a}}
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: gpus, namespace: team-a}
    spec: {hard: {requests.nvidia.com/gpu: "GPUS"}}
  - {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: training}, value: 10000}
"""
QUEUE = """
  - {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: research}, spec: {weight: 4}}
"""
GPUS_FIELD = "requests.nvidia.com/gpu"
QUOTA = ObjectRef("v1", "ResourceQuota", "gpus", "team-a")
PRIORITY = ObjectRef("scheduling.k8s.io/v1", "PriorityClass", "training")
RESEARCH = ObjectRef("scheduling.volcano.sh/v1beta1", "Queue", "research")
SPACE = ObjectRef("v1", "Namespace", "team-a")
DEFINITION = {
    "metadata": {"name": "queues.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Cluster",
        "names": {"plural": "queues", "kind": "Queue"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True}],
    },
}


class Killed(BaseException):
    """Kill -9 in the middle of a step."""


def bring_queues(world: World) -> None:
    """Create what Volcano's chart creates."""
    with world.sim.lock:
        if world.sim.store.find("customresourcedefinitions", DEFINITION["metadata"]["name"]) is None:
            world.sim.api.create(person("helm"), "customresourcedefinitions", DEFINITION)


@pytest.fixture
def world(make_world: Any) -> World:
    """One node is enough: these laws are about the cluster itself."""
    made: World = make_world(nodes=1)
    return made


@pytest.fixture
def releases(world: World, monkeypatch: Any) -> Releases:
    made = Releases().install(monkeypatch)
    made.during["volcano"] = lambda stop: bring_queues(world)
    return made


def plan_of(world: World, text: str, *names: str, gpus: int = 8, settings: Any = None, **strategy: Any) -> Plan:
    source = "policies:" + text.replace("GPUS", str(gpus))
    objects = schema.flatten(schema.parse(source), None, origin="gpu r1").content.policies
    return world.plan(world.revision(settings or {}, policies=objects, components=wanted(*names)), **strategy)


def outcomes(rollout: Rollout) -> dict[str, str]:
    return {s.name: s.status for s in rollout.steps.of_components()}


def there(world: World, ref: ObjectRef) -> dict[str, Any] | None:
    try:
        return world.fleet.policy(ref)
    except NotFound:
        return None


def edit(world: World, plural: str, name: str, change: dict[str, Any], namespace: str = "") -> None:
    world.sim.api.patch(person("alice"), plural, name, change, namespace)


def standing(world: World) -> str:
    """Return the state of the cluster's policy objects, as compliance sees them now."""
    components.reconcile()
    row = ComponentStanding.objects.get(cluster=world.cluster, kind=ComponentStanding.Kind.POLICIES)
    assert components.check(row.pk)
    row.refresh_from_db()
    return row.state


def sentence(world: World) -> str:
    return ComponentStanding.objects.get(cluster=world.cluster, kind=ComponentStanding.Kind.POLICIES).sentence


def blocks(plan: Plan) -> list[str]:
    return [f["code"] for f in plan.findings if f["severity"] == "block"]


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
    assert left.components.get().left_out == "atlas / train wants the very same, and brings them."


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
    assert dropped[0] == "Namespace/team-a is not wanted any more, and stays"
    assert len(dropped) == 3
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


# ── law 2: what was approved is what runs ─────────────────────────────────────────────────────────────────────────────


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
        [take] = next(one["takes"] for one in row.prepared["objects"] if one.get("takes"))
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
    said = {
        "another value": "is 5, held by kubectl-edit by now, and the plan showed 3, held by kubectl-edit; plan again",
        "another manager": "is 3, held by bob by now, and the plan showed 3, held by kubectl-edit; plan again",
        "put back": "is 8, held by kubectl-edit by now, and the plan showed 3, held by kubectl-edit; plan again",
        "kept by Argo CD": "Argo CD's Application teams keeps it.",
    }
    assert (step.status, said[how] in step.error) == ("failed", True), step.error
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
    assert plan.components.get().left_out == "Nothing is done with them: something of them blocks this plan."
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


# ── laws 4, 6 and 10: no silence, killed, every verb ──────────────────────────────────────────────────────────────────


def test_killed_in_the_middle_the_next_attempt_goes_on(world, monkeypatch):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)
    pk = step_of(rollout, FIRST).pk
    applied: list[str] = []
    real = world.fleet.apply_policy

    def apply(manifest: Any, *, dry_run: bool = False, force_at: str = "") -> Any:
        if len(applied) == 2 and not dry_run:
            raise Killed
        if not dry_run:
            applied.append(manifest["kind"])
        return real(manifest, dry_run=dry_run, force_at=force_at)

    with monkeypatch.context() as patch:
        patch.setattr(world.fleet, "apply_policy", apply)
        patch.setattr(claims, "release", lambda token: None)
        with pytest.raises(Killed):
            component_runner.carry_out(pk)
    assert applied == ["Namespace", "PriorityClass"]
    assert component_runner.carry_out(pk) is None, "the dead worker's lease is not over"
    world.clock.forward(claims.settings.SETPOINT_LEASE_SECONDS + 1)
    world.look()

    assert world.run(rollout).status == "succeeded"
    assert (step_of(rollout, FIRST).attempt, bool(there(world, QUOTA))) == (1, True)


def test_an_api_server_that_does_not_answer_is_waited_for_and_said(world, monkeypatch):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)

    def lost(*args: Any, **how: Any) -> Any:
        raise FleetUnavailable("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.fleet, "apply_policy", lost)
        component_runner.carry_out(step_of(rollout, FIRST).pk)
    step = step_of(rollout, FIRST)
    assert (step.status, step.waiting_for) == ("applying", "connection refused")
    assert step.deadline_at is not None
    assert step.events.filter(text="Tried again: connection refused").exists()
    assert world.run(rollout).status == "succeeded"


def test_an_object_changed_before_it_was_seen_ready_fails_in_words(world):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)
    component_runner.carry_out(step_of(rollout, FIRST).pk)
    edit(world, "resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}, "team-a")

    world.run(rollout)

    step = step_of(rollout, FIRST)
    assert (step.status, step.failed_in) == ("failed", "verifying")
    assert step.error.startswith("ResourceQuota team-a/gpus was changed by another party")


def test_without_a_worker_the_step_ends_and_says_so(world):
    rollout = world.started(plan_of(world, TEAM))
    for _ in range(5):
        reconcile.run(rollout.pk)
        world.tick(1000)

    step = step_of(rollout, FIRST)
    assert step.status == "failed"
    assert "No worker picked them up" in step.error


def test_a_freeze_an_abort_and_a_pause_come_before_the_first_write(world):
    rollout = world.started(plan_of(world, TEAM))
    reconcile.run(rollout.pk)
    freezes.freeze(cluster=world.cluster, reason="release week", by=world.operator)
    world.slice(rollout)
    assert step_of(rollout, FIRST).status == "queued"
    assert there(world, SPACE) is None

    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout)
    assert (rollout.status, outcomes(rollout)) == ("cancelled", {FIRST: "skipped"})


def test_an_abort_that_puts_back_takes_away_what_was_made(world):
    rollout = world.started(plan_of(world, TEAM))
    world.sim.faults.add("error", verb="patch", resource="resourcequotas")
    reconcile.run(rollout.pk)
    component_runner.carry_out(step_of(rollout, FIRST).pk)
    assert (step_of(rollout, FIRST).status, bool(there(world, PRIORITY))) == ("applying", True)

    rollout_actions.abort(rollout, by=world.operator, in_flight="revert")
    world.run(rollout)

    assert (rollout.status, outcomes(rollout)) == ("cancelled", {FIRST: "reverted"})
    assert (there(world, QUOTA), there(world, PRIORITY)) == (None, None)


def test_the_queue_of_helm_is_not_waited_for(world, releases, monkeypatch):

    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(tasks.helm, "apply_async", lambda args, **how: asked.append(("helm", args[0])))
    monkeypatch.setattr(tasks.policies, "apply_async", lambda args, **how: asked.append(("policies", args[0])))
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    rollout = world.started(plan_of(world, TEAM, "cert-manager"))

    tasks.advance(str(rollout.pk))
    assert asked == [("policies", str(step_of(rollout, FIRST).pk))]
    tasks.policies(asked[0][1])
    tasks.advance(str(rollout.pk))
    assert asked[1:] == [("helm", str(step_of(rollout, "cert-manager").pk))]


def test_what_is_marked_is_ours_and_what_is_not_is_left_on_the_way_back(world):
    rollout = world.run(world.started(plan_of(world, TEAM)))
    assert there(world, QUOTA)["metadata"]["labels"] == {policy_objects.MARK: f"pool-{world.pool.pk}"}
    world.sim.api.delete(person("alice"), "priorityclasses", "training")
    world.sim.api.create(person("alice"), "priorityclasses", {"metadata": {"name": "training"}, "value": 7})

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "reverted"
    assert (there(world, PRIORITY) or {}).get("value") == 7
    assert step_of(rollout, FIRST).output[-2] == "PriorityClass training is not ours any more."
    assert registry.connect(world.cluster) is world.fleet
