"""Law 1 with several rollouts at once: one count for a cluster and all its rollouts."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from clusters.models import Cluster, Node, Pool
from jobs.forecast import slots as ledger
from jobs.models import Plan, Rollout, Slot, Step, short_numbers
from tests.jobs.pages import browser

REBOOT = "reboot"
_POSITION = count(1)


def _rollout(world, pool, listed, *, budget):
    """A rollout in progress whose approvers saw `listed` out of service, and `budget` as the cluster's."""
    plan = world.plan(world.revision({"cmdline.iommu": "pt"}), canary=0, batch="50", include_unavailable=True)
    summary = plan.summary | {"budget": budget}
    Plan.objects.filter(pk=plan.pk).update(pool=pool, status=Plan.Status.STARTED, summary=summary, worst_class=REBOOT)
    nodes = {node.name: node for node in Node.objects.filter(cluster=world.cluster)}
    plan.nodes.exclude(name__startswith=pool.name).delete()
    plan.nodes.update(is_unavailable=False)
    plan.nodes.filter(name__in=listed).update(is_unavailable=True)
    rollout = Rollout.objects.create(
        number=short_numbers.next_number("rollout"), plan=plan, cluster=world.cluster, status=Rollout.Status.RUNNING
    )
    for row in plan.nodes.all():
        Step.objects.create(
            rollout=rollout, plan_node=row, node=nodes[row.name], node_uid=row.uid, node_name=row.name, batch=1,
            position=next(_POSITION), worst_class=REBOOT,
        )  # fmt: skip
    return rollout


@pytest.fixture
def two(make_world):
    """Pools a and b of six nodes each, of which a1 and a2, and b1, were out when their plans were made."""
    world = make_world(nodes=12)
    for place, node in enumerate(Node.objects.order_by("pk")):
        Node.objects.filter(pk=node.pk).update(name=f"{'ab'[place // 6]}{place % 6 + 1}")
    Cluster.objects.update(budget=3)
    world.cluster.refresh_from_db()
    Node.objects.filter(name__in=["a1", "a2", "b1"]).update(is_cordoned=True)
    selector = {"matchLabels": {"pool": "train"}}
    pools = [Pool.objects.create(cluster=world.cluster, name=name, selector=selector) for name in "ab"]
    rollouts = [
        _rollout(world, pool, listed, budget=3) for pool, listed in zip(pools, (["a1", "a2"], ["b1"]), strict=True)
    ]
    return world, rollouts


def _unavailable():
    """Nodes that do no work: others took them out, or Setpoint may."""
    cordoned = set(Node.objects.unavailable().values_list("pk", flat=True))
    return cordoned | set(Slot.objects.values_list("node_id", flat=True))


@pytest.mark.parametrize("seed", range(12))
def test_two_rollouts_together_never_exceed_what_any_of_their_approvers_saw(two, seed):
    """The law holds while nodes fail and recover, rollouts pause and resume, slots are taken and given back."""
    world, rollouts = two
    chance = Random(seed)
    saw = {r.pk: set(r.plan.nodes.filter(is_unavailable=True).values_list("node_id", flat=True)) for r in rollouts}
    taken = 0
    for _ in range(60):
        act = chance.choice(["take", "take", "take", "give back", "ill", "well", "pause", "go on"])
        rollout = chance.choice(rollouts)
        if act == "take":
            if Rollout.objects.get(pk=rollout.pk).status != Rollout.Status.RUNNING:
                continue
            free = [
                step for step in rollout.steps.select_related("node") if not Slot.objects.filter(step=step).exists()
            ]
            asking = chance.sample(free, min(3, len(free)))
            before = _unavailable()
            granted, _ = ledger.take_slots(asking, world.cluster, plan_id=rollout.plan_id, budget=3)
            taken += len(granted)
            slots = set(Slot.objects.values_list("node_id", flat=True))
            assert len(slots) <= 3, "more by Setpoint than the budget"
            if _unavailable() - before:  # a node that was out already is repaired in its own place
                for other in Rollout.objects.filter(status=Rollout.Status.RUNNING):
                    more = (_unavailable() - saw[other.pk]) | slots
                    assert len(more) <= 3, f"{other} was approved for fewer"
        elif act == "give back":
            if held := list(Slot.objects.order_by("node_id")):
                chance.choice(held).delete()
        elif act in ("ill", "well"):
            node = Node.objects.exclude(slots__isnull=False).order_by("pk")[chance.randrange(8)]
            Node.objects.filter(pk=node.pk).update(is_cordoned=act == "ill")
        else:
            status = Rollout.Status.PAUSED if act == "pause" else Rollout.Status.RUNNING
            Rollout.objects.filter(pk=rollout.pk).update(status=status)
    assert taken, "or this tries nothing"


def test_who_is_out_is_one_number_on_the_pages_and_over_rest_of_every_rollout(two):
    """However differently their plans list what was out before them."""
    world, rollouts = two
    step = rollouts[0].steps.get(node_name="a5")
    Slot.objects.create(cluster=world.cluster, node=step.node, step=step)
    client = browser(world.operator)
    shown = {client.get(f"/rollouts/R-{rollout.number}/").context["out"].sentence() for rollout in rollouts}
    over_rest = {
        client.get(f"/api/v1/rollouts/{rollout.pk}").json()["out_of_service"]["sentence"] for rollout in rollouts
    }
    assert shown == over_rest == {"4 nodes unavailable: 1 by Setpoint of 3 allowed, 3 by others"}


def test_what_every_plan_under_way_lists_is_before_and_takes_no_place(two):
    world, (first, second) = two
    Rollout.objects.filter(pk=second.pk).update(status=Rollout.Status.STOPPED)
    unavailable = ledger.out_of_service(world.cluster)
    assert (len(unavailable.slots), len(unavailable.before), len(unavailable.since)) == (0, 2, 1)
    asking = list(first.steps.filter(node_name__in=["a3", "a4", "a5"]).select_related("node"))
    granted, _ = ledger.take_slots(asking, world.cluster, plan_id=first.plan_id, budget=3)
    assert len(granted) == 2
    assert (
        ledger.out_of_service(world.cluster).sentence()
        == "5 nodes unavailable: 2 by Setpoint of 3 allowed, 2 before, 1 by others"
    )


@pytest.mark.parametrize(("now", "granted"), [(9, 3), (1, 1)], ids=["raised", "lowered"])
def test_the_budget_is_that_of_now_and_never_more_than_the_approvers_saw(two, now, granted):
    """The law holds for a worker that read its cluster before the budget was changed, too."""
    world, (first, _) = two
    Node.objects.update(is_cordoned=False)
    Cluster.objects.update(budget=now)
    asking = list(first.steps.filter(node_name__in=["a3", "a4", "a5", "a6"]).select_related("node"))
    assert world.cluster.budget == 3
    steps, _ = ledger.take_slots(asking, world.cluster, plan_id=first.plan_id, budget=9)
    assert len(steps) == granted
