"""A component whose own operator takes nodes out of service: it uses the same budget, is what was approved, and is not
called done while its operator works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusters.models import Cluster, Pool
from common.errors import WrongState
from components.blast.ground import Ground
from components.plans.hits import Blast, Hit
from jobs.approvals import rules, verdicts
from jobs.forecast import slots
from jobs.forecast.strategy import parse
from jobs.models import ApprovalRule, Plan, PlanComponent, Rollout, Step
from jobs.planning import digests, planner
from jobs.rollouts import rollout_actions
from profiles.content.cluster import WantedComponent
from tests.jobs.conftest import World
from tests.jobs.releases import Release, Releases, wanted

LABEL = "nvidia.com/gpu-driver-upgrade-state"
REBOOT = {"cmdline.iommu": "pt"}


def driver(*nodes: str, at_once: int = 1, worst: str = "gpu-pods") -> Blast:
    hit = Hit(
        "ClusterPolicy cluster-policy", "changed", worst, "The driver is loaded again.", ("spec.driver.version",),
        ("gpu-operator/nvidia-driver-daemonset",), nodes, len(nodes), at_once, LABEL, "ClusterPolicy cluster-policy",
        reserves=True, interrupts=True,
    )  # fmt: skip
    return Blast(worst, hit.why, (hit,), places=at_once, nodes_at_once=at_once, gpus_at_once=8 * at_once, gpus=8)


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases(there={"gpu-operator": Release(["1.0.0"])}).install(monkeypatch)


def upgrade(world: World, releases: Releases, blast: Blast, **more: Any) -> Plan:
    releases.blasts["gpu-operator"] = blast
    revision = world.revision(more.pop("settings", {}), components=wanted(**{"gpu-operator": "2.0.0"}))
    return world.plan(revision, **more)


def step_of(rollout: Rollout) -> Step:
    return rollout.steps.get(component="gpu-operator")


# ── what approvers see ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_upgrade_of_the_driver_in_production_is_no_live_plan_of_zeros(make_world, releases):
    world = make_world(nodes=3, environment="production")
    world.sim.pods.add("train-0", node="n2", namespace="team", gpus=8, owner={"kind": "Job", "name": "train"})
    world.look()

    plan = upgrade(world, releases, driver("n1", "n2", "n3"))

    assert plan.worst_class == "gpu-pods"
    numbers = {key: plan.summary[key] for key in ("nodes_hit", "nodes_hit_at_once", "gpus_out_at_once", "gpu_jobs")}
    assert numbers == {"nodes_hit": 3, "nodes_hit_at_once": 1, "gpus_out_at_once": 8, "gpu_jobs": 1}
    assert [row["namespace"] for row in plan.summary["namespaces"]] == ["team"]
    assert plan.summary["seconds"] >= 3 * 300, "node by node"
    assert verdicts.strictest_requirement(plan).approvers == 2


def test_a_removal_counts_as_an_upgrade_of_the_same_reach_does(make_world, releases):
    world = make_world(nodes=3, environment="production")
    for node in ("n1", "n2"):
        world.sim.pods.add(f"train-{node}", node=node, namespace="team", gpus=8, owner={"kind": "Job", "name": "train"})
    world.look()
    reach = driver("n1", "n2", "n3", at_once=3)
    upgraded = upgrade(world, releases, reach)
    hit = replace(reach.hits[0], what="The release as a whole", change="deleted", controller="", reserves=False)
    releases.blasts["gpu-operator"] = replace(reach, hits=(hit,), places=0)
    gone = world.plan(world.revision({}, components=[WantedComponent("gpu-operator", is_gone=True)]))

    assert gone.components.get().action == "remove"
    keys = ("nodes_hit", "gpus_hit", "nodes_hit_at_once", "gpus_out_at_once", "gpu_jobs", "gpu_pods", "namespaces")
    assert {key: gone.summary[key] for key in keys} == {key: upgraded.summary[key] for key in keys}
    assert (gone.worst_class, gone.summary["gpu_jobs"], gone.summary["gpu_pods"]) == ("gpu-pods", 1, 2)
    assert verdicts.strictest_requirement(gone).approvers == 2
    by_space = [ApprovalRule.objects.create(name="theirs", namespace="team", gpu_jobs=1, approvers=3)]
    assert verdicts.strictest_requirement(gone).name == by_space[0].name


def test_shares_of_rules_count_what_components_disturb(make_world, releases):
    world = make_world(nodes=1)
    for name in ("m1", "m2", "m3"):
        world.sim.add_node(name, gpus=8, labels={"pool": "other"})
    world.observe()
    ApprovalRule.objects.create(name="half of the GPUs", gpu_percent=50, node_percent=50, approvers=3)

    few = upgrade(world, releases, driver("n1"))
    many = upgrade(world, releases, driver("n1", "m2"))

    facts = rules.facts_of([few, many], [ApprovalRule(gpu_percent=1, node_percent=1)])
    assert facts[many.pk].gpu_share == 0.5
    assert facts[few.pk].node_share == 0.25
    assert [verdicts.strictest_requirement(plan).approvers for plan in (few, many)] == [1, 3]


def test_the_digest_covers_the_blast(world, releases):
    plan, other = (upgrade(world, releases, driver("n1", worst=worst)) for worst in ("gpu-pods", "drain"))
    assert plan.digest != other.digest


@pytest.mark.parametrize("column", [{"places": 0}, {"hit": []}, {"worst_class": "live"}])
def test_a_row_that_says_otherwise_than_what_was_approved_starts_nothing(world, releases, column):
    plan = world.approved(upgrade(world, releases, driver("n1")))
    PlanComponent.objects.filter(plan=plan).update(**column)

    assert not digests.are_components_intact(plan)
    with pytest.raises(WrongState):
        rollout_actions.start(plan, by=world.operator)


# ── the budget ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_operator_that_may_take_more_than_the_budget_is_refused_with_what_to_set(world, releases):
    plan = upgrade(world, releases, driver("n1", "n2", at_once=2))

    assert plan.is_blocked
    finding = next(f for f in plan.findings if f["code"] == "operator-budget")
    assert "ClusterPolicy cluster-policy" in finding["detail"]
    assert finding["severity"] == "block"


def agents(*nodes: str, at_once: int) -> Blast:
    """Build the blast of Cilium's DaemonSet: the network of a node restarts, and no GPU pod ends."""
    limit = "DaemonSet cilium, spec.updateStrategy.rollingUpdate.maxUnavailable"
    hit = Hit(
        "DaemonSet kube-system/cilium", "changed", "network", "The agent restarts on each node.", ("spec.template",),
        ("kube-system/cilium",), nodes, len(nodes), at_once, limit=limit,
    )  # fmt: skip
    return Blast("network", hit.why, (hit,), nodes_at_once=at_once, gpus_at_once=8 * at_once, gpus=8)


def test_a_daemonset_of_the_network_that_restarts_beyond_the_budget_is_refused_with_what_to_set(world, releases):
    plan = upgrade(world, releases, agents("n1", "n2", at_once=2))

    assert plan.is_blocked
    finding = next(f for f in plan.findings if f["code"] == "operator-budget")
    assert "spec.updateStrategy.rollingUpdate.maxUnavailable" in finding["detail"]
    assert "kube-system/cilium restarts on 2 nodes at once" in finding["title"]
    assert (finding["severity"], finding["nodes"]) == ("block", ["n1", "n2"])
    assert not upgrade(world, releases, agents("n1", "n2", at_once=1)).is_blocked
    assert upgrade(world, releases, agents("n1", "n2", at_once=1)).components.get().places == 0


@pytest.mark.parametrize("is_started", [False, True])
def test_it_does_not_begin_under_a_budget_lowered_since(world, releases, is_started):
    Cluster.objects.update(budget=2)
    world.look()
    plan = world.approved(upgrade(world, releases, agents("n1", "n2", at_once=2)))
    if not is_started:
        Cluster.objects.update(budget=1)
        with pytest.raises(WrongState, match="budget is 1"):
            rollout_actions.start(Plan.objects.get(pk=plan.pk), by=world.operator)
        return
    rollout = rollout_actions.start(plan, by=world.operator)
    Cluster.objects.update(budget=1)
    world.slice(rollout)
    assert step_of(rollout).status == "held"
    assert not releases.runs


def test_a_budget_lowered_since_the_plan_starts_nothing(world, releases):
    Cluster.objects.update(budget=2)
    world.look()
    plan = world.approved(upgrade(world, releases, driver("n1", "n2", at_once=2)))
    Cluster.objects.update(budget=1)
    plan = Plan.objects.get(pk=plan.pk)

    with pytest.raises(WrongState, match="budget is 1"):
        rollout_actions.start(plan, by=world.operator)


def test_a_budget_lowered_after_the_start_holds_the_step(world, releases):
    Cluster.objects.update(budget=2)
    world.look()
    rollout = world.started(upgrade(world, releases, driver("n1", "n2", at_once=2)))
    Cluster.objects.update(budget=1)

    world.slice(rollout)

    assert step_of(rollout).status == "held"
    assert not releases.runs


def test_it_begins_only_when_all_its_places_are_free(world, releases):
    rollout = world.started(upgrade(world, releases, driver("n1")))
    world.sim.nodes.cordon("n3")
    world.look()

    for _ in range(3):
        world.slice(rollout)
        world.tick(2)
    assert step_of(rollout).status == "queued"
    assert "1 are taken" in step_of(rollout).waiting_for
    assert not releases.runs

    world.sim.nodes.cordon("n3", is_cordoned=False)
    world.look()
    assert world.run(rollout).status == "succeeded"


def test_while_it_works_no_other_node_is_taken_out(make_world, releases):
    """Neither before its operator has taken its first node, nor is that node counted twice."""
    world = make_world(nodes=1)
    world.sim.add_node("m1", labels={"pool": "other"})
    world.observe()
    other = Pool.objects.create(cluster=world.cluster, name="other", selector={"matchLabels": {"pool": "other"}})
    releases.not_ready["gpu-operator"] = "the driver is not ready"
    first = world.started(upgrade(world, releases, driver("n1")))
    world.run(first, seconds=20)
    assert step_of(first).status == "verifying"
    revision, strategy = world.revision(REBOOT), parse({"canary": 0})
    second = world.started(planner.make(pool=other, revision=revision, strategy=strategy, by=world.operator))

    for _ in range(5):
        world.slice(second)
        world.tick(1)
    assert second.steps.get(node_name="m1").status == "queued"
    assert "may be taken by an operator" in second.steps.get(node_name="m1").waiting_for
    assert not world.node("m1").is_cordoned

    Cluster.objects.update(budget=2)
    world.look()
    assert slots.out_of_service(world.cluster).reserved == 1
    world.sim.nodes.upgrade_driver("n1", "drain-required")
    world.look()
    places = slots.out_of_service(world.cluster)
    assert (len(places.taken), places.reserved) == (1, 0), "its operator took the place that was kept"


def test_it_is_not_done_while_its_operator_works_on_a_node_and_failed_where_that_failed(world, releases):
    rollout = world.started(upgrade(world, releases, driver("n1", "n2")))
    world.slice(rollout)
    world.sim.nodes.upgrade_driver("n1", "drain-required")
    world.look()
    for _ in range(4):
        world.slice(rollout)
        world.tick(4)
    step = step_of(rollout)
    assert (step.status, "n1" in step.waiting_for) == ("verifying", True)

    world.sim.nodes.upgrade_driver("n1", "upgrade-done")
    world.sim.nodes.upgrade_driver("n2", "upgrade-failed")
    world.look()
    world.run(rollout, seconds=60)
    assert step_of(rollout).status == "failed"
    assert "n2" in step_of(rollout).error


def test_what_waits_for_its_turn_at_the_operator_is_not_done_either(world, releases):
    rollout = world.started(upgrade(world, releases, driver("n1", "n2")))
    world.sim.nodes.upgrade_driver("n2", "upgrade-required")
    world.look()
    for _ in range(4):
        world.slice(rollout)
        world.tick(4)
    assert step_of(rollout).status == "verifying"
    world.sim.nodes.upgrade_driver("n2", "upgrade-done")
    world.look()
    assert world.run(rollout).status == "succeeded"


def test_plans_made_before_a_blast_was_reckoned_keep_their_digest(world, releases):
    plan = upgrade(world, releases, driver("n1"))
    row = plan.components.get()
    old = replace(releases.prepare(world.cluster, wanted(**{"gpu-operator": "2.0.0"})[0]), blast=None)
    assert "blast" not in old.to_json()
    assert type(old).from_json(old.to_json()).digest == old.digest != row.digest


def test_the_ground_is_what_the_rows_say(world, releases):
    ground = Ground.of(world.cluster)
    assert (ground.named("gpu"), ground.gpus(["n1", "n2"])) == (("n1", "n2", "n3"), 16)
