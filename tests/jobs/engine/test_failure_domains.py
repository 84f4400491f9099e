"""Law 1 with a failure domain in the strategy: nodes of two domains are never under way together."""

from __future__ import annotations

from itertools import pairwise

import pytest

from clusters.models import Cluster
from common.errors import Invalid
from jobs.forecast.strategy import parse
from jobs.models import PlanNode, Rollout
from jobs.planning import digests
from jobs.reports import plan_changes
from jobs.rollouts import rollout_actions

ZONE = "topology.kubernetes.io/zone"
REBOOT = {"cmdline.iommu": "pt"}


@pytest.fixture
def zoned(make_world):
    """Six nodes, in the zones a and b by turns; one more than a zone has may be out at once."""
    world = make_world(nodes=6)
    for number in range(1, 7):
        world.sim.nodes.relabel(f"n{number}", {ZONE: "ab"[number % 2]})
    Cluster.objects.update(budget=4)
    world.look()
    return world


def zones_out(world) -> set[str]:
    """Zones of the nodes that the simulated cluster has out of service; Setpoint's rows are not asked."""
    nodes = [raw for raw in world.fleet.list("nodes").items if raw["spec"].get("unschedulable")]
    return {raw["metadata"]["labels"].get(ZONE, "") for raw in nodes}


def watched(world, rollout: Rollout, *, seconds: int = 6000) -> list[set[str]]:
    """Carry the rollout out; return the zones that were out after each slice in which any was."""
    history = []
    for _ in range(seconds // 10):
        world.slice(rollout)
        if out := zones_out(world):
            history.append(out)
        if not rollout.is_live or rollout.status in (Rollout.Status.PAUSED, Rollout.Status.STOPPED):
            break
        world.tick(10)
    return history


def test_zones_are_never_out_together_and_one_is_finished_before_the_next(zoned):
    rollout = zoned.started(zoned.plan(zoned.revision(REBOOT), canary=1, batch="6", domain=ZONE))

    history = watched(zoned, rollout)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert all(len(zones) == 1 for zones in history)
    order = [zone for (zone,) in history]
    assert sum(here != after for here, after in pairwise(order)) == 1
    assert zoned.sim.nodes.peak_unavailable() > 1  # together within a zone


def test_without_a_domain_zones_are_out_together(zoned):
    """Otherwise the test above could not fail."""
    rollout = zoned.started(zoned.plan(zoned.revision(REBOOT), canary=0, batch="6"))

    assert any(len(zones) == 2 for zones in watched(zoned, rollout))


def test_a_revert_keeps_zones_apart_as_well(zoned):
    rollout = zoned.started(zoned.plan(zoned.revision(REBOOT), canary=0, batch="6", domain=ZONE))
    watched(zoned, rollout)
    rollout_actions.revert(rollout, by=zoned.operator)
    rollout.refresh_from_db()

    history = watched(zoned, rollout)

    assert rollout.status == "reverted", rollout.waiting_for
    assert history
    assert all(len(zones) == 1 for zones in history)


def tried_again(world, rollout: Rollout, node: str) -> list[set[str]]:
    """Retry a held node once its value is as planned again; return the zones that were out from then on."""
    world.sim.drift(node, "vm.swappiness", "60")
    world.tick(5)
    rollout_actions.retry_failed(rollout, by=world.operator, step=rollout.steps.get(node_name=node))
    rollout.refresh_from_db()
    history = watched(world, rollout)
    assert rollout.status == "succeeded", rollout.waiting_for
    return history


def test_a_held_node_that_is_out_keeps_the_next_zone_in(zoned):
    """Three failures are tolerated, but a node that waits for an operator still is out of service."""
    revision = zoned.revision(REBOOT | {"vm.swappiness": "10"})
    rollout = zoned.started(zoned.plan(revision, canary=0, batch="3", domain=ZONE, max_failures=3))
    first = PlanNode.objects.filter(batch=1).first()
    zoned.sim.drift(first.name, "vm.swappiness", "33")  # seen by the agent, when the node is drained already

    history = watched(zoned, rollout, seconds=2000)

    assert rollout.steps.get(node_name=first.name).status == "held"
    assert set.union(*history) == {first.domain} == zones_out(zoned)
    assert first.name in rollout.waiting_for
    assert all(len(zones) == 1 for zones in tried_again(zoned, rollout, first.name))


def test_a_node_that_is_tried_again_waits_for_the_zone_that_is_out(zoned):
    revision = zoned.revision(REBOOT | {"vm.swappiness": "10"})
    rollout = zoned.started(zoned.plan(revision, canary=0, batch="3", domain=ZONE, max_failures=3))
    first = PlanNode.objects.filter(batch=1).first()
    zoned.sim.drift(first.name, "vm.swappiness", "33")
    zoned.tick(10)  # known before its step begins: the node is held, and in service
    for _ in range(400):
        zoned.slice(rollout)
        if zones_out(zoned) - {first.domain}:
            break
        zoned.tick(10)
    assert rollout.steps.get(node_name=first.name).status == "held"

    history = tried_again(zoned, rollout, first.name)

    assert {first.domain} in history
    assert all(len(zones) == 1 for zones in history)


def test_nodes_that_change_places_stay_within_their_zone(zoned):
    """Later batches are filled by the order rule again: nodes that became busy go to the end of their own zone."""
    rollout = zoned.started(zoned.plan(canary=0, batch="1", domain=ZONE))
    zoned.until(rollout, "succeeded", node=PlanNode.objects.get(batch=2).name)
    busy = PlanNode.objects.get(batch=3)
    zoned.sim.add_pod("late", node=busy.name, gpus=8)
    zoned.look()

    zoned.run(rollout)

    assert rollout.status == "succeeded"
    planned = dict(PlanNode.objects.values_list("batch", "domain"))
    assert {step.batch: step.plan_node.domain for step in rollout.steps.select_related("plan_node")} == planned


def test_nodes_without_the_label_come_last_and_are_named(zoned):
    zoned.sim.nodes.relabel("n1", {ZONE: None})
    zoned.look()

    plan = zoned.plan(canary=1, batch="2", domain=ZONE)

    assert plan.nodes.order_by("batch").last().name == "n1"
    (finding,) = [f for f in plan.findings if f["code"] == "no-failure-domain"]
    assert (finding["severity"], finding["nodes"]) == ("warn", ["n1"])
    assert [row["domain"] for row in plan.summary["batches"]][-1] == ""


def test_a_label_that_no_node_has_is_refused_with_those_that_they_have(zoned):
    with pytest.raises(Invalid) as error:
        zoned.plan(domain="topology.kubernetes.io/zones")

    (message,) = error.value.fields["strategy.domain"]
    assert f"They have {ZONE}." in message


@pytest.mark.parametrize(
    "strategy",
    [
        {"domain": "a b"},
        {"domain": 7},
        {"domain": ZONE, "order": "measured"},
        {"domain": ZONE, "include_joining": True},
    ],
)
def test_what_cannot_be_kept_apart_is_refused_by_its_field(strategy):
    with pytest.raises(Invalid) as error:
        parse(strategy)

    assert list(error.value.fields) == ["strategy.domain"]


def test_a_domain_that_was_tampered_with_is_not_what_was_approved(zoned):
    plan = zoned.approved(zoned.plan(domain=ZONE))
    assert digests.is_as_approved(plan)

    PlanNode.objects.filter(plan=plan, name="n1").update(domain="a")

    assert not digests.is_as_approved(plan)


def test_the_page_has_a_line_for_each_domain_where_batches_are_many(zoned):
    plan = zoned.plan(canary=1, batch="1", domain=ZONE)
    plan.summary["batches"] *= 3  # eighteen
    rows = plan_changes.batch_rows(plan)

    assert sum(row["nodes"] for row in rows) == 18
    assert all(row["domain"] in {"a", "b"} and not row.get("is_mixed") for row in rows)
    assert len(rows) < 9
