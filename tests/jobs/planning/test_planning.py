"""Laws of making a plan: refused with its reason, or frozen whole; the same input is the same digest."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from audit.models import Record
from clusters.models import Cluster, Node, NodeTuning
from common.clock import now
from common.errors import Invalid, NotAllowed, Refusal, WrongState
from compliance.models import SettingState
from jobs.forecast.strategy import parse
from jobs.models import ChangeSet, Plan, PlanNode, Signal
from jobs.planning import digests, planner
from jobs.rollouts import freezes
from tests.jobs.conftest import World, person
from tests.jobs.rows import change_sets_of, more_nodes

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}


def change(row: Any, **fields: Any) -> None:
    type(row).objects.filter(pk=row.pk).update(**fields)
    row.refresh_from_db()


def tuning(world: World, name: str, **fields: Any) -> None:
    NodeTuning.objects.filter(node__name=name, node__cluster=world.cluster).update(**fields)


def left_out(plan: Plan) -> dict[str, str]:
    return dict(plan.nodes.exclude(left_out="").values_list("name", "left_out"))


def codes(plan: Plan) -> dict[str, str]:
    return {f["code"]: f["severity"] for f in plan.findings}


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _empty_selector(world: World) -> None:
    change(world.pool, selector={})


def _hollow_selector(world: World) -> None:
    change(world.pool, selector={"matchLabels": {}, "matchExpressions": []})


def _nothing_matches(world: World) -> None:
    change(world.pool, selector={"matchLabels": {"pool": "nobody"}})


def _all_gone(world: World) -> None:
    Node.objects.update(gone_at=now())


def _unreachable(world: World) -> None:
    change(world.cluster, reach="unreachable", reach_reason="connection refused")


def _never_seen(world: World) -> None:
    change(world.cluster, reach="reachable", observed_at=None)


def _stale(world: World) -> None:
    change(world.cluster, observed_at=now() - timedelta(seconds=301))


def _foreign(world: World) -> None:
    change(world.cluster, ownership="foreign", ownership_mark="somebody-else")


def _unclaimed(world: World) -> None:
    change(world.cluster, ownership="unclaimed", ownership_mark="")


def _no_change(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        row = Node.objects.get(name=name).tuning
        change(row, observed=row.observed | {"vm.swappiness": "10"})


@pytest.mark.parametrize(
    ("spoil", "kind", "says"),
    [
        (_empty_selector, Invalid, "selector"),
        (_hollow_selector, Invalid, "selector"),
        (_nothing_matches, Invalid, "matches no node"),
        (_all_gone, Invalid, "matches no node"),
        (_unreachable, WrongState, "connection refused"),
        (_never_seen, WrongState, "never seen"),
        (_stale, WrongState, "301 s ago"),
        (_foreign, WrongState, "somebody-else"),
        (_unclaimed, WrongState, "take it over"),
        (_no_change, WrongState, "nothing to plan"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_its_reason_and_leaves_nothing(world, spoil, kind, says):
    spoil(world)
    world.pool.cluster.refresh_from_db()

    with pytest.raises(kind, match=says) as refusal:
        world.plan()

    if kind is Invalid:
        assert set(refusal.value.fields) == {"pool"}
    assert not Plan.objects.exists()
    assert not PlanNode.objects.exists()
    assert not Record.objects.filter(action="plan.make").exists()


@pytest.mark.parametrize("role", ["viewer", "approver", "admin", "operator@env:production"])
def test_only_an_operator_of_this_cluster_plans(world, role):
    name, _, scope = role.partition("@")
    somebody = person("somebody", role=name)
    if scope:
        somebody.bindings.update(scope=scope)

    with pytest.raises(NotAllowed, match="operator"):
        planner.make(pool=world.pool, revision=world.revision(), strategy=parse({}), by=somebody)


def test_who_may_not_plan_learns_nothing_about_the_cluster(world):
    _unreachable(world)
    with pytest.raises(NotAllowed):
        planner.make(pool=world.pool, revision=world.revision(), strategy=parse({}), by=person("x", role="viewer"))


def test_a_cluster_that_goes_away_while_planning_is_a_refusal(world):
    """A drain reads the pods at once; the rows may still call the cluster reachable."""
    world.sim.faults.outage = True

    with pytest.raises(Refusal, match="atlas"):
        world.plan(world.revision(REBOOT))

    assert not Plan.objects.exists()


# ── cost and findings ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_gpus_and_jobs_are_counted_where_nodes_are_drained(world):
    world.sim.add_pod("t-0", node="n1", gpus=8, namespace="ml")
    world.tick(5)

    live, drained = world.plan(), world.plan(world.revision(REBOOT), delete_unmanaged_pods=True)

    assert (live.summary["gpu_jobs"], live.summary["gpus_out_at_once"], live.summary["pods_evicted"]) == (0, 0, 0)
    assert (drained.summary["gpu_jobs"], drained.summary["gpus_out_at_once"], drained.summary["gpus"]) == (1, 8, 24)
    assert drained.summary["pods_evicted"] == 1
    assert drained.summary["namespaces"][0]["namespace"] == "ml"
    assert drained.nodes.order_by("position").last().name == "n1", "the idle ones first"


def test_a_signal_goes_before_idleness_until_it_expires(world):
    node = world.node("n1")
    Signal.objects.create(scope=f"node:{node.pk}", kind="order", value=-5, expires_at=now() + timedelta(minutes=1))
    assert world.plan().nodes.get(position=0, left_out="").name == "n1"
    Signal.objects.update(value=5)
    assert world.plan().nodes.get(position=2).name == "n1"
    Signal.objects.update(expires_at=now())
    assert world.plan().nodes.get(position=0).name == "n1"


def test_a_bare_pod_blocks_a_drain_and_not_a_live_change(world):
    world.sim.add_pod("lonely", node="n1")
    world.tick(1)

    assert codes(world.plan(world.revision(REBOOT)))["bare-pods"] == "block"
    assert "bare-pods" not in codes(world.plan())


def test_keys_that_lack_or_are_beyond_are_found_once_a_key(world):
    plan = world.plan(
        world.revision({"vm.swappiness": ">= 10", "fs.aio-max-nr": ">= 1", "fs.nr_open": "5", "vm.max_map_count": "5"})
    )

    code_counts = [(f["code"], f["count"]) for f in plan.findings]
    assert code_counts.count(("key-missing", 3)) == 1
    assert code_counts.count(("already-higher", 3)) == 2
    assert plan.summary["values"] == 3


def test_what_others_do_here_is_told(world):
    Node.objects.filter(name="n3").update(is_cordoned=True)
    freezes.freeze(cluster=world.cluster, reason="Tonight", by=world.operator, until=now() + timedelta(hours=1))
    freezes.freeze(cluster=world.cluster, reason="Black Friday", by=world.operator)  # ends last, so this one is named
    busy = world.started(canary=1)

    plan = world.plan(world.revision(REBOOT | {"vm.overcommit_memory": "1"}))

    assert codes(plan).keys() >= {"frozen", "budget-taken", "busy", "left-out"}
    titles = {f["code"]: f for f in plan.findings}
    assert f"R-{busy.number}" in titles["busy"]["title"]
    assert titles["busy"]["nodes"] == ["n1", "n2"]
    assert "Black Friday" in titles["frozen"]["detail"]
    assert titles["budget-taken"]["nodes"] == ["n3"]


def test_control_plane_nodes_and_mixed_pools_are_named(world):
    Node.objects.filter(name="n2").update(is_control_plane=True, gpu_product="", architecture="arm64")

    plan = world.plan()

    assert codes(plan)["control-plane"] == "warn"
    assert codes(plan)["mixed"] == "note"
    assert plan.nodes.get(name="n2").batch == 3
    assert plan.summary["roles"] == {"worker": 2, "control plane": 1}


def test_keys_of_the_kubelet_are_warned_of(world):
    NodeTuning.objects.update(observed={"vm.overcommit_memory": "0"})
    assert codes(world.plan(world.revision({"vm.overcommit_memory": "1"})))["kubelet-owned"] == "warn"


def test_a_key_that_the_new_revision_drops_is_planned_back_to_its_original(world):
    SettingState.objects.create(
        node=world.node("n1"), key="fs.aio-max-nr", desired="1048576", original="65536", has_original=True
    )

    content = world.plan().nodes.get(name="n1").change_set.content

    assert [(c["kind"], c["key"], c["value"]) for c in content["items"]] == [
        ("restore", "fs.aio-max-nr", "65536"), ("setting", "vm.swappiness", "10"),
    ]  # fmt: skip


# ── what is stored ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_says_who_made_it_when_it_was_seen_and_when_it_ends(world):
    plan = world.plan()
    plan.refresh_from_db()

    assert (plan.status, plan.created_by, plan.observed_at) == ("draft", world.operator, world.cluster.observed_at)
    assert plan.expires_at - plan.created_at == timedelta(hours=72)
    assert plan.digest.startswith("sha256:")
    record = Record.objects.get(action="plan.make")
    assert record.after["digest"] == plan.digest
    assert record.actor == str(world.operator)


def test_planning_writes_nothing_to_the_cluster(world):
    before = len(list(world.sim.audit))
    world.plan(world.revision(REBOOT))
    requests = list(world.sim.audit)[before:]
    assert {e.verb for e in requests} <= {"get", "list"}
    assert not [e for e in requests if e.request]


def test_identical_differences_are_one_change_set_and_queries_do_not_grow_with_nodes(make_world):
    world = make_world(nodes=3)
    revision = world.revision()
    world.plan(revision)  # what is read once a process is read
    with CaptureQueriesContext(connection) as few:
        world.plan(revision)
    more_nodes(world, 497)
    with CaptureQueriesContext(connection) as many:
        plan = world.plan(revision)

    assert plan.summary["nodes"] == 500
    assert len(change_sets_of(plan)) == ChangeSet.objects.count() == 1
    inserts = [q for q in many.captured_queries if 'INTO "jobs_plannode"' in q["sql"]]
    assert len(inserts) <= 10, "SQLite takes few values at once"
    assert len(many) - len(inserts) == len(few) - 1


def test_nodes_that_differ_are_as_many_change_sets_as_differences(make_world):
    world = make_world(nodes=4)
    for name, value in (("n1", "60"), ("n2", "60"), ("n3", "30"), ("n4", "10")):
        tuning(world, name, observed={"vm.swappiness": value})

    plan = world.plan()

    assert len(change_sets_of(plan)) == 3, "one of them only tells the agent to watch what is as wanted already"
    assert [plan.summary[name] for name in ("nodes", "watched", "compliant", "values")] == [4, 1, 0, 3]


@pytest.mark.django_db(transaction=True)
def test_plans_made_at_once_have_different_numbers(make_world):
    world = make_world(nodes=1)
    revision = world.revision()
    gate, numbers, failures = threading.Barrier(4), [], []

    def make() -> None:
        try:
            gate.wait(10)
            numbers.extend(world.plan(revision).number for _ in range(3))
        except Exception as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not failures
    assert len(numbers) == len(set(numbers)) == 12


def test_a_plan_that_fails_half_way_leaves_no_row_and_no_number(world, monkeypatch):
    def fail(plan: Plan) -> str:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(digests, "plan_digest", fail)
        with pytest.raises(RuntimeError):
            world.plan()

    assert not Plan.objects.exists()
    assert world.plan().number == 1


def test_two_clusters_do_not_mix(world):
    other = Cluster.objects.create(uid="other", name="other", server="https://x", credential=b"")
    Node.objects.create(cluster=other, uid="o1", name="o1", labels={"pool": "train"}, is_ready=True)
    assert world.plan().summary["pool_nodes"] == 3
