"""Rollouts of one node are put back in reverse order; a node that left its pool before its turn is not changed."""

from __future__ import annotations

import pytest

from common.errors import WrongState
from compliance.models import NodeExpectation
from jobs.models import Rollout
from jobs.rollouts import rollout_actions
from tests.jobs.pages import browser
from tests.jobs.rest import api


def _run(world, value):
    return world.run(world.started(world.plan(world.revision({"vm.swappiness": value}), canary=0, batch="3")))


def test_consecutive_rollouts_are_put_back_in_reverse_order(world):
    first, second, third = (_run(world, value) for value in ("30", "20", "10"))
    assert world.value("n1") == "10"

    for rollout, value in ((third, "20"), (second, "30"), (first, "60")):
        rollout_actions.revert(rollout, by=world.operator)
        world.run(rollout)
        assert rollout.status == "reverted", rollout.waiting_for
        assert {world.value(node) for node in ("n1", "n2", "n3")} == {value}
    assert set(NodeExpectation.objects.values_list("revision", flat=True)) == {None}


def test_the_order_holds(world):
    first, second, third = (_run(world, value) for value in ("30", "20", "10"))
    with pytest.raises(WrongState, match="later rollout"):
        rollout_actions.revert(second, by=world.operator)
    rollout_actions.revert(third, by=world.operator)
    world.run(third)
    with pytest.raises(WrongState, match="later rollout"):
        rollout_actions.revert(first, by=world.operator)


def test_a_node_whose_later_rollout_is_not_put_back_keeps_it(world):
    """The earlier rollout can be reverted on n2, whose later one was reverted, and on no other node."""
    first, second = _run(world, "30"), _run(world, "10")
    rollout_actions.revert(second, by=world.operator, step=second.steps.get(node_name="n2"))
    world.run(second)
    assert {node: world.value(node) for node in ("n1", "n2", "n3")} == {"n1": "10", "n2": "30", "n3": "10"}

    with pytest.raises(WrongState, match="later rollout"):
        rollout_actions.revert(first, by=world.operator)
    where = f"/api/v1/rollouts/{first.pk}/steps"
    offered = {row["node_name"]: row["actions"]["revert"] for row in api(world.operator).get(where).json()["results"]}
    assert offered == {"n1": False, "n2": True, "n3": False}
    rollout_actions.revert(first, by=world.operator, step=first.steps.get(node_name="n2"))
    world.run(first)
    assert {node: world.value(node) for node in ("n1", "n2", "n3")} == {"n1": "10", "n2": "60", "n3": "10"}


def test_what_another_wrote_after_it_was_put_back_stays(world):
    first, second = _run(world, "30"), _run(world, "10")
    rollout_actions.revert(second, by=world.operator)
    world.run(second)
    _run(world, "40")
    with pytest.raises(WrongState, match="later rollout"):
        rollout_actions.revert(first, by=world.operator)
    assert world.value("n1") == "40"


def test_a_queued_node_that_left_the_pool_is_held_and_not_changed(world):
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.sim.nodes.relabel("n3", {"pool": "spare"})
    world.look()
    world.run(rollout, seconds=300)
    steps = {step.node_name: (step.status, step.error) for step in rollout.steps.all()}
    assert steps["n3"][0] == "held"
    assert "left the pool" in steps["n3"][1]
    assert world.value("n3") == "60"
    assert Rollout.objects.get(pk=rollout.pk).state == "held"
    assert "left the pool" in browser(world.operator).get(f"/rollouts/R-{rollout.number}/").content.decode()

    world.sim.nodes.relabel("n3", {"pool": "train"})
    world.look()
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=300)
    assert rollout.status == "succeeded"
