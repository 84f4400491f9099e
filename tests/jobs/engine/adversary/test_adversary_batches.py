"""Later batches are a forecast: their nodes are chosen again by the approved order rule as a batch opens."""

from __future__ import annotations

from jobs.models import Rollout, Signal, Step
from jobs.planning import digests
from jobs.rollouts import rollout_actions
from tests.jobs.conftest import World


def batches(rollout: Rollout) -> dict[int, set[str]]:
    out: dict[int, set[str]] = {}
    for batch, name in rollout.steps.values_list("batch", "node_name"):
        out.setdefault(batch, set()).add(name)
    return out


def grows_busy(world: World, *names: str) -> None:
    for name in names:
        world.sim.add_pod(f"train-{name}", node=name, namespace="team-llm", gpus=8)
    world.look()


def until_open(world: World, rollout: Rollout, batch: int) -> None:
    for _ in range(200):
        if rollout.steps.filter(batch=batch).exclude(status=Step.Status.QUEUED).exists():
            return
        world.slice(rollout)
        world.tick(1)
    raise AssertionError(f"batch {batch} never opened: {rollout.waiting_for}")


def test_a_later_batch_takes_the_nodes_that_are_idle_when_it_opens(make_world):
    world = make_world(nodes=6)
    rollout = world.started(world.plan(canary=1, batch="1"))
    assert batches(rollout) == {n: {f"n{n}"} for n in range(1, 7)}
    world.until(rollout, "succeeded", node="n1")
    grows_busy(world, "n3", "n4")

    world.run(rollout)

    assert rollout.status == "succeeded"
    order = list(rollout.steps.order_by("batch").values_list("node_name", flat=True))
    assert order == ["n1", "n2", "n5", "n6", "n3", "n4"]


def test_canary_and_first_batch_stay_as_they_were_approved(make_world):
    world = make_world(nodes=4)
    plan = world.approved(world.plan(canary=1, batch="1"))
    grows_busy(world, "n1", "n2")
    rollout = rollout_actions.start(plan, by=world.operator)
    world.run(rollout)

    assert {n: batches(rollout)[n] for n in (1, 2)} == {1: {"n1"}, 2: {"n2"}}
    assert digests.is_as_approved(plan)


def test_the_sizes_of_batches_and_the_turn_of_control_plane_nodes_stay(make_world):
    world = make_world(nodes=6)
    world.sim.add_node("m1", control_plane=True, labels={"pool": "train"})
    world.observe()
    rollout = world.started(world.plan(canary=1, batch="2"))
    sizes = {n: len(names) for n, names in batches(rollout).items()}
    world.until(rollout, "succeeded", node="n1")
    grows_busy(world, "n4", "n5")

    world.run(rollout)

    assert {n: len(names) for n, names in batches(rollout).items()} == sizes
    assert batches(rollout)[max(sizes)] == {"m1"}
    assert "n6" in batches(rollout)[3]


def test_telemetry_orders_later_batches_too(make_world, clock):
    world = make_world(nodes=4)
    rollout = world.started(world.plan(canary=1, batch="1"))
    world.until(rollout, "succeeded", node="n1")
    Signal.objects.create(
        scope=f"node:{world.node('n3').pk}", kind="order", value=0.9, expires_at=clock().replace(year=2027)
    )
    world.run(rollout)
    assert list(rollout.steps.order_by("batch").values_list("node_name", flat=True)) == ["n1", "n2", "n4", "n3"]


def test_an_order_by_name_is_kept(make_world):
    world = make_world(nodes=4)
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "succeeded", node="n1")
    grows_busy(world, "n3")
    world.run(rollout)
    assert list(rollout.steps.order_by("batch").values_list("node_name", flat=True)) == ["n1", "n2", "n3", "n4"]


def test_a_batch_that_has_opened_is_not_ordered_anew(make_world):
    world = make_world(nodes=6)
    rollout = world.started(world.plan(canary=1, batch="1", max_in_flight=1))
    until_open(world, rollout, 3)
    third = batches(rollout)[3]
    grows_busy(world, *third)
    world.run(rollout)
    assert batches(rollout)[3] == third
