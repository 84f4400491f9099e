"""Status words, banners and counts of rollouts say what is the case: held and stopped ones are not under way."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.urls import reverse

from jobs.models import Rollout, Step
from jobs.reports import counts
from jobs.rollouts import rollout_actions
from tests.jobs.pages import browser

REBOOT = {"cmdline.iommu": "pt"}


def _hold(rollout, *names):
    """Leave the step as the engine leaves one that an operator must decide."""
    for name in names:
        step = rollout.steps.get(node_name=name)
        Step.objects.filter(pk=step.pk).update(
            status=Step.Status.HELD, error=f"{name} moved.", failed_in="applying", deadline_at=None, claim="",
        )  # fmt: skip


@pytest.fixture
def held(make_world):
    """Three of five nodes are held; the budget of one is taken by the first, so the others wait for a slot."""
    world = make_world(nodes=5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="5"))
    world.until(rollout, "restarting")
    _hold(rollout, "n1", "n2", "n3")
    world.tick(420)
    world.slice(rollout)
    return world, rollout


def _under_way(client, path):
    return {int(number) for number in re.findall(r'data-under-way="(\d+)"', client.get(path).content.decode())}


def test_a_rollout_whose_nodes_are_held_is_held_and_its_banner_speaks_of_them(held):
    world, rollout = held
    assert rollout.status == "running"
    assert Rollout.objects.get(pk=rollout.pk).state == "held"
    assert rollout.waiting_for.startswith("3 nodes are held"), rollout.waiting_for
    assert "n1" in rollout.waiting_for
    assert "n4" not in rollout.waiting_for
    assert rollout.waiting_since == rollout.steps.get(node_name="n1").entered_at

    client = browser(world.operator)
    page = client.get(f"/rollouts/R-{rollout.number}/").content.decode()
    assert 'data-state="held"' in page
    assert client.get(f"/api/v1/rollouts/{rollout.pk}").json()["state"] == "held"
    (listed,) = client.get("/api/v1/rollouts").json()["results"]
    assert listed["state"] == "held"


def test_what_is_said_of_held_nodes_is_said_once(held):
    """The event and the sentence stay, with anything else that the slice finds on its way."""
    world, rollout = held
    before = (rollout.waiting_for, rollout.waiting_since)
    world.tick(60)
    world.slice(rollout)
    assert (rollout.waiting_for, rollout.waiting_since) == before


def test_while_others_go_on_it_runs_and_still_speaks_of_who_is_held(held):
    world, rollout = held
    Step.objects.filter(rollout=rollout, node_name="n4").update(status=Step.Status.DRAINING)
    assert Rollout.objects.get(pk=rollout.pk).state == "running"
    world.slice(rollout)
    assert rollout.waiting_for.startswith("3 nodes are held"), rollout.waiting_for


@pytest.mark.parametrize("status", ["held", "stopped", "paused", "queued"])
def test_what_waits_for_a_person_or_a_time_is_not_under_way_on_any_page(held, status):
    world, rollout = held
    if status != "held":
        Rollout.objects.filter(pk=rollout.pk).update(status=status)
    client = browser(world.operator)
    pages = [reverse("jobs:overview"), reverse("clusters:cluster", args=[world.cluster.pk]), reverse("jobs:rollouts")]
    for path in pages:
        assert _under_way(client, path) == {0}, path
    match = re.search(r"data-standing>([^<]*)<", client.get(pages[0]).content.decode())
    assert match
    assert match[1] == f"1 rollout {status}"


def test_one_that_runs_is_under_way_on_every_page(make_world):
    world = make_world(nodes=2)
    rollout = world.started(world.plan(world.revision(REBOOT)))
    world.until(rollout, "restarting")
    client = browser(world.operator)
    for path in (reverse("jobs:overview"), reverse("clusters:cluster", args=[world.cluster.pk])):
        assert _under_way(client, path) == {1}, path


def test_idle_time_is_no_work(make_world):
    """The rollout ended within a minute; two hours later it was reverted, which took as long again."""
    world = make_world(nodes=2)
    rollout = world.run(world.started(world.plan(canary=0, batch="2")))
    first = rollout.worked
    assert timedelta() < first < timedelta(minutes=5)

    world.tick(7200)
    assert Rollout.objects.get(pk=rollout.pk).worked == first
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.status == "reverted"
    assert first < Rollout.objects.get(pk=rollout.pk).worked < first + timedelta(minutes=5)


def test_nodes_and_components_are_never_added_up():
    done = counts.finished_steps(
        {("node", "succeeded"): 6, ("component", "succeeded"): 4, ("policies", "reverted"): 1, ("node", "failed"): 2}
    )
    assert done == counts.FinishedSteps(nodes=6, of_nodes=8, parts=5, of_parts=5)


def test_what_a_rollout_ended_with_is_said_by_kind(make_world):
    world = make_world(nodes=2)
    rollout = world.run(world.started(world.plan(canary=0, batch="2")))
    assert rollout.events.filter(text="Succeeded: 2 nodes succeeded.").exists()
