"""Laws 1, 2 and 14 for taints: whom a NoExecute taint evicts is counted and drained first, others stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.connection import registry
from clusters.fleet import FleetUnavailable
from clusters.models import GpuPod
from common.errors import WrongState
from jobs.approvals import verdicts
from jobs.diffs.changes import Disruption
from jobs.diffs.node_diff import ObservedNode, Target, compare_node
from jobs.forecast import rule_facts
from jobs.models import ApprovalRule, Plan, Step
from jobs.rollouts import rollout_actions
from tests.jobs.conftest import World

KEY = "example.com/team"
TAINT = (KEY, "a", "NoExecute")
FOR_GOOD = {"key": KEY, "operator": "Exists", "effect": "NoExecute"}
FOR_A_WHILE = FOR_GOOD | {"tolerationSeconds": 3600}
OTHER_VALUE = {"key": KEY, "operator": "Equal", "value": "b", "effect": "NoExecute"}


def job(world: World, name: str, node: str, *tolerations: dict[str, Any], gpus: int = 8, kind: str = "Job") -> str:
    """Add a job in the namespace `team-<name>`. Returns its UID."""
    pod = world.sim.pods.add(
        name,
        node=node,
        namespace=f"team-{name}",
        gpus=gpus,
        owner={"kind": kind, "name": name},
        tolerations=tolerations,
    )
    world.look()
    return str(pod.raw["metadata"]["uid"])


def tainted(
    world: World, *taints: tuple[str, str, str], settings: dict[str, str] | None = None, **strategy: Any
) -> Plan:
    revision = world.revision(settings or {}, taints=taints or [TAINT])
    return world.plan(revision, **{"canary": 0, **strategy})


def classes(plan: Plan) -> dict[str, str]:
    return dict(plan.nodes.filter(left_out="").values_list("name", "worst_class"))


def finding(plan: Plan, code: str) -> dict[str, Any]:
    return next((f for f in plan.findings if f["code"] == code), {})


def is_there(world: World, name: str, uid: str) -> bool:
    pod = world.sim.store.find("pods", name, f"team-{name}")
    return pod is not None and pod.raw["metadata"]["uid"] == uid and "deletionTimestamp" not in pod.raw["metadata"]


@pytest.fixture
def three(make_world) -> World:
    """n1: a job that goes; n2: one that stays; n3: one that stays for an hour."""
    world = make_world(nodes=3)
    job(world, "goes", "n1")
    job(world, "stays", "n2", FOR_GOOD)
    job(world, "later", "n3", FOR_A_WHILE)
    return world


# ── what approvers see ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_taint_counts_the_pods_that_do_not_tolerate_it_for_good(three):
    plan = tainted(three)
    assert classes(plan) == {"n1": "drain", "n2": "new-pods", "n3": "drain"}
    numbers = {key: plan.summary[key] for key in ("drains", "gpu_jobs", "gpu_pods", "pods_evicted", "gpus_out_at_once")}
    assert numbers == {"drains": 2, "gpu_jobs": 2, "gpu_pods": 2, "pods_evicted": 2, "gpus_out_at_once": 8}
    assert {row["namespace"] for row in plan.summary["namespaces"]} == {"team-goes", "team-later"}
    evicts = finding(plan, "taint-evicts")
    assert (evicts["severity"], evicts["nodes"], "3600 s" in evicts["detail"]) == ("warn", ["n1", "n3"], True)


def test_a_node_of_which_nobody_is_evicted_takes_no_slot_and_says_so(make_world):
    world = make_world(nodes=2)
    job(world, "stays", "n1", {"operator": "Exists"})
    plan = tainted(world)
    assert (plan.worst_class, plan.summary["nodes_out_at_once"], plan.summary["gpu_jobs"]) == ("new-pods", 0, 0)
    assert finding(plan, "taint-spares")["count"] == 2
    assert not finding(plan, "taint-evicts")
    assert verdicts.strictest_requirement(plan).approvers == 1


def test_another_value_counts_whom_the_new_one_evicts(make_world):
    world = make_world(nodes=2)
    world.run(world.started(tainted(world)))
    for name, node, value in (("old", "n1", "a"), ("both", "n2", "")):
        more = {"operator": "Equal", "value": value} if value else {}
        job(world, name, node, FOR_GOOD | more)
    plan = tainted(world, (KEY, "b", "NoExecute"))
    assert classes(plan) == {"n1": "drain", "n2": "new-pods"}


def test_what_else_drains_a_node_counts_all_of_its_pods(make_world):
    world = make_world(nodes=1)
    job(world, "stays", "n1", FOR_GOOD)
    plan = tainted(world, settings={"cmdline.iommu": "pt"})
    assert (plan.worst_class, plan.summary["gpu_jobs"], plan.summary["pods_evicted"]) == ("reboot", 1, 1)


def test_pods_of_daemon_sets_that_it_ends_are_named(make_world):
    world = make_world(nodes=2)
    for name, own in (("logs", ()), ("net", [{"operator": "Exists"}])):
        world.sim.pods.workload("DaemonSet", name, namespace="kube-system", tolerations=own)
    world.tick(5)
    plan = tainted(world)
    assert classes(plan) == {"n1": "drain", "n2": "drain"}
    assert (finding(plan, "taint-daemons")["count"], plan.summary["pods_evicted"]) == (2, 0)
    assert "kube-system/logs" in finding(plan, "taint-daemons")["detail"]


def test_taking_it_away_interrupts_nothing_and_says_so(three):
    three.run(three.started(tainted(three), step_deadline_seconds=3600))
    plan = three.plan(three.revision({"vm.swappiness": "20"}), canary=0)
    assert (plan.worst_class, plan.summary["drains"], plan.summary["gpu_jobs"]) == ("live", 0, 0)
    assert finding(plan, "taint-removed")["severity"] == "note"


def test_a_taint_against_new_pods_says_so(make_world):
    world = make_world(nodes=1)
    uid = job(world, "stays", "n1")
    plan = tainted(world, (KEY, "a", "NoSchedule"))
    assert (plan.worst_class, plan.summary["gpu_jobs"]) == ("new-pods", 0)
    assert finding(plan, "taint-new-pods")["count"] == 1
    assert world.run(world.started(plan)).status == "succeeded"
    assert is_there(world, "stays", uid)
    assert tainted(world, (KEY, "a", "PreferNoSchedule")).worst_class == "live"


def test_rules_about_jobs_and_namespaces_ask_about_the_evicted_only(three):
    rules = [
        ApprovalRule.objects.create(name="theirs", namespace="team-stays", approvers=3),
        ApprovalRule.objects.create(name="hers", namespace="team-goes", approvers=2),
    ]
    plan = tainted(three)
    assert verdicts.strictest_requirement(plan).name == "hers"
    extras = rule_facts.extra_facts([plan], rules)[plan.pk]
    assert (extras.namespaces, extras.gpu_jobs) == ({"team-goes", "team-later"}, 2)
    # One that comes since counts, as rules look at the cluster as it is.
    job(three, "new", "n1", OTHER_VALUE, gpus=1)
    assert "team-new" in rule_facts.extra_facts([plan], rules)[plan.pk].namespaces


def test_a_row_that_was_not_filled_yet_counts_its_pod(three):
    plan = tainted(three)
    job(three, "stays-too", "n1", FOR_GOOD, gpus=1)
    rules = [ApprovalRule(gpu_jobs=1)]
    assert rule_facts.extra_facts([plan], rules)[plan.pk].gpu_jobs == 2
    GpuPod.objects.update(tolerations=[])
    assert rule_facts.extra_facts([plan], rules)[plan.pk].gpu_jobs == 3


def test_the_digest_covers_whom_it_evicts(make_world):
    world = make_world(nodes=1)
    revision = world.revision({}, taints=[TAINT])
    before = world.plan(revision)
    job(world, "goes", "n1")
    assert world.plan(revision).digest != before.digest


def test_a_cluster_whose_pods_cannot_be_read_makes_no_such_plan(make_world, monkeypatch):
    world = make_world(nodes=1)

    def away() -> Any:
        raise FleetUnavailable("away")

    monkeypatch.setattr(registry.connect(world.cluster), "pods", away)
    with pytest.raises(WrongState, match="pods of atlas cannot be read"):
        tainted(world)


# ── what is done ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_whom_it_evicts_is_drained_and_before_the_taint_is_there(make_world):
    world = make_world(nodes=1)
    kept = job(world, "stays", "n1", FOR_GOOD, gpus=4)
    gone = job(world, "goes", "n1", gpus=4)
    rollout = world.started(tainted(world))
    world.until(rollout, Step.Status.DRAINING)
    world.sim.pods.budget("keeps", namespace="team-goes", labels={"app": "goes"}, minAvailable=1)
    world.run(rollout, seconds=30)
    assert rollout.steps.get().status == "draining", "a disruption budget decides, as for every drain"
    assert is_there(world, "goes", gone)
    assert not any(t["key"] == KEY for t in world.sim.node("n1")["spec"].get("taints") or ())
    world.sim.store.delete("poddisruptionbudgets", "keeps", "team-goes")
    assert world.run(rollout).status == "succeeded", rollout.steps.get().error
    assert {"cordoning", "draining", "returning"} <= set(rollout.steps.get().stages)
    assert not is_there(world, "goes", gone)
    world.tick(30)
    assert is_there(world, "stays", kept)


def test_a_pod_that_came_since_is_not_evicted_by_a_plan_that_counted_none(make_world):
    world = make_world(nodes=1)
    rollout = world.started(tainted(world))
    uid = job(world, "came", "n1")
    step = world.until(rollout, "held")
    assert "team-came/came" in step.error
    world.tick(60)
    assert is_there(world, "came", uid)
    assert not any(t["key"] == KEY for t in world.sim.node("n1")["spec"].get("taints") or ())


def test_a_revert_that_sets_it_again_evicts_nobody(make_world):
    world = make_world(nodes=1)
    world.run(world.started(tainted(world)))
    rollout = world.run(world.started(world.plan(world.revision({"vm.swappiness": "20"}), canary=0)))
    assert rollout.status == "succeeded"
    uid = job(world, "came", "n1")
    rollout_actions.revert(rollout, by=world.operator)
    step = world.until(rollout, "held")
    assert "team-came/came" in step.error
    assert is_there(world, "came", uid)


def test_a_revert_that_takes_it_away_drains_nobody(three):
    rollout = three.run(three.started(tainted(three)))
    assert rollout.status == "succeeded"
    came = job(three, "came", "n1", FOR_GOOD)
    rollout_actions.revert(rollout, by=three.operator)
    three.run(rollout)
    assert set(rollout.steps.values_list("status", flat=True)) == {"reverted"}
    assert is_there(three, "came", came)


# ── over all pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

words = st.sampled_from([KEY, "other", ""])
tolerating = st.fixed_dictionaries(
    {"key": words, "operator": st.sampled_from(["Exists", "Equal", ""]), "value": st.sampled_from(["", "a", "b"])},
    optional={"tolerationSeconds": st.integers(0, 9), "effect": st.sampled_from(["NoExecute", "NoSchedule"])},
)


@given(st.lists(st.lists(tolerating, max_size=3), max_size=3), st.sampled_from(["a", "b"]), st.sampled_from(["", "a"]))
def test_a_node_is_drained_exactly_when_the_taint_manager_would_end_a_pod(pods, value, there):
    """The reference is written from GetMatchingTolerations and getMinTolerationTime."""

    def ends(own: list[dict[str, Any]]) -> bool:
        for toleration in own:
            fits = toleration["key"] in ("", KEY) and toleration.get("effect", "") in ("", "NoExecute")
            if fits and (toleration["operator"] == "Exists" or toleration["value"] == value):
                return "tolerationSeconds" in toleration
        return True

    taints = [{"key": KEY, "value": there, "effect": "NoExecute"}] if there else []
    seen = ObservedNode(observed={}, labels={}, annotations={}, taints=taints, pods=pods)
    worst = compare_node(Target((), taints=((KEY, value, "NoExecute"),)), seen).changes.worst_class
    if value == there:
        assert worst is Disruption.LIVE
    else:
        assert worst is (Disruption.DRAIN if any(map(ends, pods)) else Disruption.NEW_PODS)
