"""The port's evictions: what each answer of the Eviction API means."""

from __future__ import annotations

import pytest

from clusters.fleet import PodRef


@pytest.fixture
def node(world):
    return world.node(world.name("node"))["metadata"]["name"]


def ref(pod):
    return PodRef(pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"])


def is_there(world, node, pod):
    return any(p["metadata"]["uid"] == pod["metadata"]["uid"] for p in world.fleet.pods_on(node))


def test_an_evicted_pod_ends(world, node):
    pod = world.pod(world.name("pod"), node)
    assert world.fleet.evict(ref(pod), grace_seconds=1).outcome == "evicted"
    world.until(lambda: not is_there(world, node, pod))
    assert world.fleet.evict(ref(pod)).outcome == "gone"


def test_a_pod_that_took_the_name_is_spared(world, node):
    old = world.pod(name := world.name("pod"), node, lingers=True)  # kwok would delete by name, and so the next one
    world.fleet.evict(ref(old), grace_seconds=1)
    world.end(name)
    new = world.pod(name, node)
    assert world.fleet.evict(ref(old)).outcome == "gone"
    [survivor] = [p for p in world.fleet.pods_on(node) if p["metadata"]["name"] == name]
    assert survivor["metadata"]["uid"] == new["metadata"]["uid"]
    assert "deletionTimestamp" not in survivor["metadata"]


def test_a_budget_blocks_and_is_named(world, node):
    label = {"app": world.name("app")}
    pod = world.pod(world.name("pod"), node, labels=label)
    world.budget(budget := world.name("budget"), label, 1)
    answer = world.fleet.evict(ref(pod))
    assert (answer.outcome, answer.budget) == ("blocked", f"default/{budget}")
    assert answer.message
    assert answer.retry_after >= 0
    [survivor] = [p for p in world.fleet.pods_on(node) if p["metadata"]["uid"] == pod["metadata"]["uid"]]
    assert "deletionTimestamp" not in survivor["metadata"]


def test_a_budget_with_room_lets_one_go_and_no_second(world, node):
    label = {"app": world.name("app")}
    pods = [world.pod(world.name("pod"), node, labels=label, lingers=True) for _ in range(2)]
    world.budget(world.name("budget"), label, 1)
    world.until(lambda: world.fleet.evict(ref(pods[0])).outcome == "evicted")
    assert world.fleet.evict(ref(pods[1])).outcome == "blocked"


def test_two_budgets_over_one_pod_block_it_and_both_are_named(world, node):
    label = {"app": world.name("app")}
    pod = world.pod(world.name("pod"), node, labels=label)
    budgets = sorted([world.name("budget"), world.name("budget")])
    for budget in budgets:
        world.budget(budget, label, 0)
    answer = world.fleet.evict(ref(pod))
    assert answer.outcome == "blocked"
    assert answer.budget.replace(" ", "").split(",") == [f"default/{b}" for b in budgets]


def test_a_pod_that_is_ending_can_be_evicted_again(world, node):
    pod = world.pod(world.name("pod"), node, lingers=True)
    assert world.fleet.evict(ref(pod)).outcome == "evicted"
    [ending] = [p for p in world.fleet.pods_on(node) if p["metadata"]["uid"] == pod["metadata"]["uid"]]
    assert ending["metadata"]["deletionTimestamp"]
    assert world.fleet.evict(ref(pod)).outcome == "evicted"
