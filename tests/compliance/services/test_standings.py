"""Standings of nodes: rolled up at writing, the same in every view, and never compliant while unknown."""

from __future__ import annotations

from datetime import timedelta

from clusters.models import Cluster, Node, NodeTuning
from compliance.models import Assignment, NodeStanding
from compliance.reports import selectors
from compliance.services import standings


def standing(world, name):
    return NodeStanding.objects.get(node=world.node(name))


def counts(world):
    return selectors.count(Node.objects.filter(cluster=world.cluster))


def test_a_node_that_no_plan_touched_is_beside_the_axis(world):
    assert counts(world) == {"compliant": 0, "drifted": 0, "pending": 0, "unknown": 0, "unassigned": 3}


def test_nodes_wait_for_their_turn_and_become_compliant_one_by_one(world):
    rollout = world.started(canary=1, batch="1")
    world.slice(rollout)
    assert counts(world)["pending"] == 3
    assert standing(world, "n3").reason == "train is to run gpu r1; the rollout has not reached it."
    assert not NodeStanding.objects.filter(is_joining=True).exists()

    world.run(rollout)

    assert rollout.status == "succeeded"
    assert counts(world) == {"compliant": 3, "drifted": 0, "pending": 0, "unknown": 0, "unassigned": 0}


def test_drift_is_on_the_row_at_the_next_look_with_the_file_that_won(world):
    world.run(world.started())
    world.sim.drop_file("n2", "/etc/sysctl.d/99-site.conf", "vm.swappiness = 60")
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(6)

    row = world.state("n2")
    assert (row.state, row.effective, row.cause) == ("drifted", "60", "file")
    assert row.won_by == "/etc/sysctl.d/99-site.conf:1"
    assert standing(world, "n2").state == "drifted"
    assert counts(world)["drifted"] == 1


def test_drift_without_a_file_was_written_by_hand(world):
    world.run(world.started())
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(6)
    assert (world.state("n2").cause, world.state("n2").won_by) == ("hand", "")
    assert selectors.causes(Node.objects.all()) == [("hand", "", 1)]


def test_what_is_not_heard_is_unknown_whatever_it_was(world):
    world.run(world.started())
    NodeTuning.objects.filter(node__name="n1").update(silent_since=world.clock() - timedelta(minutes=4))
    assert counts(world)["unknown"] == 1
    Cluster.objects.update(reach=Cluster.Reach.UNREACHABLE)
    assert counts(world) == {"compliant": 0, "drifted": 0, "pending": 0, "unknown": 3, "unassigned": 0}


def test_a_node_that_joins_is_pending_until_a_plan_brings_it_there(world):
    world.run(world.started())
    world.sim.add_node("n9", gpus=8, labels={"pool": "train"})
    world.observe()

    row = standing(world, "n9")
    assert (row.state, row.is_joining) == ("pending", True)
    assert row.reason == "Joined train; a plan brings it to gpu r1."
    standings.renew_all(world.cluster.pk)
    standings.renew_pool(world.pool)
    assert standing(world, "n9").is_joining

    world.run(world.started(world.plan(Assignment.objects.get().revision)))
    assert (standing(world, "n9").state, standing(world, "n9").is_joining) == ("compliant", False)


def test_a_revert_takes_the_target_back(world):
    from jobs.rollouts import rollout_actions

    rollout = world.run(world.started())
    assert Assignment.objects.count() == 1
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.status == "reverted"
    assert not Assignment.objects.exists()
    assert counts(world)["unassigned"] == 3


def test_the_safety_net_finds_nothing_to_mend(world):
    world.run(world.started())
    assert standings.renew_all(world.cluster.pk) == 0
