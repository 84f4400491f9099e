"""Nodes that are in two pools: what a plan says of the other pool's target."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.models import Pool
from compliance.models import Assignment
from jobs.models import Plan
from profiles.models import Revision
from tests.jobs.conftest import World


def overlapping(world: World, revision: Revision, selector: dict[str, Any] | None = None) -> Pool:
    """Another pool with a target."""
    pool = Pool.objects.create(cluster=world.cluster, name="other", selector=selector or world.pool.selector)
    Assignment.objects.create(pool=pool, revision=revision)
    return pool


def overlaps(plan: Plan) -> list[dict[str, Any]]:
    return [finding for finding in plan.findings if finding["code"] == "other-target"]


def test_what_another_pools_target_wants_otherwise_of_the_same_nodes_is_said(world: World) -> None:
    """Seen with two pools of one selector: 38 nodes went from what one target wants to the other's without a word."""
    overlapping(world, world.revision({"vm.swappiness": "5"}))
    [finding] = overlaps(world.plan(world.revision({"vm.swappiness": "7"})))
    assert (finding["severity"], finding["nodes"]) == ("warn", ["n1", "n2", "n3"])
    assert "other" in finding["title"]
    assert all(part in finding["detail"] for part in ("vm.swappiness", "5", "7"))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"vm.swappiness": "10"}, {"vm.swappiness": "10"}),
        ({"vm.max_map_count": "300000"}, {"vm.swappiness": "10"}),
        ({"vm.max_map_count": ">= 300000"}, {"vm.max_map_count": ">= 400000"}),
        ({"vm.max_map_count": ">= 300000"}, {"vm.max_map_count": "400000"}),
    ],
    ids=["the same", "another key", "both raise", "ours is enough for theirs"],
)
def test_what_both_targets_can_have_at_once_is_no_finding(
    world: World, theirs: dict[str, str], ours: dict[str, str]
) -> None:
    overlapping(world, world.revision(theirs))
    assert overlaps(world.plan(world.revision(ours))) == []


def test_a_pool_of_other_nodes_and_one_without_a_target_have_no_say(world: World) -> None:
    overlapping(world, world.revision({"vm.swappiness": "5"}), {"matchLabels": {"pool": "elsewhere"}})
    Pool.objects.create(cluster=world.cluster, name="third", selector=world.pool.selector)
    assert overlaps(world.plan(world.revision({"vm.swappiness": "7"}))) == []


def test_labels_and_taints_are_held_against_each_other_too(world: World) -> None:
    theirs = ("example.com/gpu", "yes", "NoSchedule")
    overlapping(world, world.revision({}, labels={"example.com/tier": "a"}, taints=[theirs]))
    ours = world.revision({}, labels={"example.com/tier": "b"}, taints=[("example.com/gpu", "no", "NoSchedule")])
    [finding] = overlaps(world.plan(ours))
    assert "example.com/tier" in finding["detail"]
    assert "example.com/gpu" in finding["detail"]
