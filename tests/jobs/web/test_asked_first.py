"""Abort and Revert all say what will happen before they act on several nodes; a verdict is chosen, never assumed."""

from __future__ import annotations

import re

import pytest

from jobs.approvals import reviews
from jobs.models import Plan, Rollout, Step
from tests.jobs.pages import browser


@pytest.fixture
def over(make_world):
    world = make_world(nodes=3)
    return world, world.run(world.started(world.plan(canary=0, batch="3")))


def test_revert_all_is_asked_about_and_acts_when_confirmed(over):
    world, rollout = over
    client = browser(world.operator)
    where = f"/rollouts/R-{rollout.number}/revert/"

    response = client.post(where)
    assert response.status_code == 200
    assert re.search(r'data-follows="(\d+)"', response.content.decode())[1] == "3"
    assert Rollout.objects.get().status == "succeeded", "nothing is done yet"

    assert client.post(where, {"confirmed": "yes"}).status_code == 302
    assert Rollout.objects.get().status == "reverting"


def test_abort_says_how_many_wait_and_how_many_are_under_way(make_world):
    world = make_world(nodes=4)
    rollout = world.started(world.plan(world.revision({"cmdline.iommu": "pt"}), canary=0, batch="4"))
    world.until(rollout, "restarting")
    client = browser(world.operator)
    where = f"/rollouts/R-{rollout.number}/abort/"

    page = client.post(where, {"in_flight": "revert"}).content.decode()
    assert 'data-follows="4"' in page
    assert 'name="in_flight" value="revert"' in page
    assert Rollout.objects.get().status == "running"

    client.post(where, {"in_flight": "revert", "confirmed": "yes"})
    row = Rollout.objects.get()
    assert (row.status, row.abort_reverts) == ("aborting", True)


def test_one_node_is_put_back_at_once(over):
    world, rollout = over
    step = rollout.steps.get(node_name="n2")
    assert browser(world.operator).post(f"/rollouts/R-{rollout.number}/revert/", {"step": step.pk}).status_code == 302
    assert rollout.steps.get(direction=Step.Direction.REVERT).node_name == "n2"


def test_nobody_is_asked_about_what_would_be_refused(over):
    world, rollout = over
    answer = browser(world.approver).post(f"/rollouts/R-{rollout.number}/revert/")
    assert answer.status_code == 302, "told why on the rollout's page"
    assert Rollout.objects.get().status == "succeeded"


def test_a_verdict_that_nobody_chose_is_none(world):
    plan = world.plan()
    reviews.request(plan, by=world.operator)
    client = browser(world.approver)
    page = client.get(f"/plans/P-{plan.number}/").content.decode()
    radios = re.findall(r'<input[^>]*name="verdict"[^>]*>', page)
    assert len(radios) == 3
    assert not any("checked" in radio for radio in radios)

    refused = client.post(f"/plans/P-{plan.number}/verdict/", {"digest": plan.digest})
    assert refused.status_code == 422
    assert Plan.objects.get(pk=plan.pk).status == "review"
    assert not plan.approvals.exists()


def test_review_begins_at_the_top_of_the_plan(world):
    plan = world.plan()
    reviews.request(plan, by=world.operator)
    page = browser(world.approver).get("/approvals/").content.decode()
    assert re.findall(rf'href="(/plans/P-{plan.number}/[^"]*)"', page) == [f"/plans/P-{plan.number}/"] * 2
