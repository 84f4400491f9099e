"""Actions offered for a rollout's node work, and those that work are offered: on its page as over REST (law 10)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from audit.models import Record
from common.errors import Refusal
from contract import names
from jobs import tasks
from jobs.models import Rollout, Step
from jobs.rollouts import rollout_actions
from jobs.rollouts.step_actions import FOLLOWS, StepOffers
from tests.factories import TokenClient
from tests.jobs.conftest import World, person
from tests.jobs.rows import more_nodes

REBOOT = {"cmdline.iommu": "pt"}


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "wake", lambda _: None)


def offered(rollout: Rollout, step: Step, user: User) -> dict[str, bool]:
    return {a.verb: a.is_possible for a in StepOffers(rollout, user).of(step)}


def works(rollout: Rollout, step: Step, verb: str, by: User) -> bool:
    """Tried for good, and taken back: all but the mark on the node."""
    row, fresh_step = Rollout.objects.get(pk=rollout.pk), Step.objects.get(pk=step.pk)
    with suppress(Refusal), transaction.atomic():
        if verb == "retry-failed":
            rollout_actions.retry_failed(row, by=by, step=fresh_step)
        elif verb == "revert":
            rollout_actions.revert(row, by=by, step=fresh_step)
        elif verb == "skip":
            rollout_actions.skip(row, fresh_step, by=by)
        else:
            rollout_actions.keep_cordoned(row, fresh_step, by=by)
        transaction.set_rollback(True)
        return True
    return False


def a_held_node_beside_done_ones(world: World) -> Rollout:
    rollout = world.started(world.plan(canary=0, batch="3", order="name"))
    world.sim.drift("n2", "vm.swappiness", "33")
    world.tick(10)
    return world.run(rollout, seconds=20)


def stopped_at_a_failure(world: World) -> Rollout:
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n2", times=1)
    return world.run(world.started(world.plan(canary=1, batch="1", order="name")))


def succeeded(world: World) -> Rollout:
    return world.run(world.started(world.plan(canary=0, batch="3")))


def one_node_put_back(world: World) -> Rollout:
    rollout = succeeded(world)
    rollout_actions.revert(rollout, by=world.operator, step=rollout.steps.get(node_name="n1"))
    return world.run(rollout)


def changed_by_a_later_rollout(world: World) -> Rollout:
    rollout = succeeded(world)
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "20"}), canary=0, batch="3")))
    return rollout


def restarting(world: World) -> Rollout:
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, batch="2", order="name"))
    world.until(rollout, "restarting")
    return rollout


def failed_after_the_first_write(world: World) -> Rollout:
    world.sim.nodes.machine("n1").dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=1, order="name", reboot_deadline_seconds=60)
    return world.run(world.started(plan), seconds=1000, step=10)


SITUATIONS = [
    a_held_node_beside_done_ones, stopped_at_a_failure, succeeded, one_node_put_back, changed_by_a_later_rollout,
    restarting, failed_after_the_first_write,
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_offered_for_a_node_is_what_works(world: World, situation: Callable[[World], Rollout]):
    rollout = situation(world)
    rollout.refresh_from_db()
    for step in rollout.steps.select_related("node"):
        offers = offered(rollout, step, world.operator)
        did = {verb: works(rollout, step, verb, world.operator) for verb in FOLLOWS}
        assert offers == did, f"{step.node_name} is {step.status}"


def test_a_node_is_kept_cordoned_from_its_page_and_the_record_says_by_whom(make_world: Any):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    step = world.until(rollout, "restarting")
    client = Client()
    client.force_login(world.operator)
    where = f"/rollouts/R-{rollout.number}"
    assert "Keep cordoned" in client.get(f"{where}/steps/{step.pk}/").content.decode()

    answer = client.post(f"{where}/keep-cordoned/", {"step": step.pk, "back": "step"})
    page = client.get(answer["Location"]).content.decode()
    world.run(rollout, seconds=3000, step=10)

    assert answer["Location"] == f"{where}/steps/{step.pk}/"
    assert "already kept cordoned" in page
    assert rollout.status == "succeeded"
    assert world.node("n1").is_cordoned
    assert names.CORDONED_BY not in world.node("n1").annotations
    record = Record.objects.get(action="rollout.keep-cordoned")
    assert (record.actor, record.after["node"]) == ("operator@example.com", "n1")


def test_a_node_is_kept_cordoned_over_rest_once_and_only_while_the_cordon_is_ours(make_world: Any):
    world = make_world(nodes=2)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    step = world.until(rollout, "restarting")
    client = TokenClient(world.operator)
    steps = f"/api/v1/rollouts/{rollout.pk}/steps"
    seen = client.get(f"{steps}/{step.pk}").json()
    assert (seen["actions"]["keep-cordoned"], seen["permissions"]["keep-cordoned"]) == (True, True)

    answer = client.post(f"{steps}/{step.pk}/actions/keep-cordoned", {})
    assert answer.status_code == 202, answer.content
    assert answer.json()["actions"]["keep-cordoned"] is False
    again = client.post(f"{steps}/{step.pk}/actions/keep-cordoned", {})
    other = rollout.steps.get(node_name="n2")
    foreign = client.post(f"{steps}/{other.pk}/actions/keep-cordoned", {})

    assert (again.status_code, foreign.status_code) == (409, 409)
    assert "already" in again.json()["detail"]
    assert foreign.json()["detail"] == "Not possible: Setpoint holds no cordon on this node."
    assert Record.objects.filter(action="rollout.keep-cordoned").count() == 1


def test_a_cordon_that_somebody_took_over_a_moment_ago_is_not_marked(make_world: Any):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    step = world.until(rollout, "restarting")
    world.sim.nodes.cordon("n1", is_cordoned=False)
    with pytest.raises(Refusal, match="not Setpoint's any more"):
        rollout_actions.keep_cordoned(rollout, step, by=world.operator)
    assert not Record.objects.filter(action="rollout.keep-cordoned").exists()


def test_who_may_not_sees_the_buttons_and_why_they_are_off(world: World):
    rollout = stopped_at_a_failure(world)
    step = rollout.steps.get(node_name="n2")
    client = Client()
    client.force_login(person("viewer"))
    page = client.get(f"/rollouts/R-{rollout.number}/steps/{step.pk}/").content.decode()
    buttons = page[page.index("h-node-actions") :]
    assert buttons.count('aria-disabled="true"') == len(FOLLOWS)
    assert "this needs the role operator for atlas" in buttons
    api = TokenClient(User.objects.get(email="viewer@example.com"))
    body = api.get(f"/api/v1/rollouts/{rollout.pk}/steps/{step.pk}").json()
    assert (body["actions"]["skip"], body["permissions"]["skip"]) == (True, False)


def test_a_verb_that_is_not_possible_says_why_beside_its_button(world: World):
    rollout = stopped_at_a_failure(world)
    client = Client()
    client.force_login(world.operator)
    page = client.get(f"/rollouts/R-{rollout.number}/").content.decode()
    assert "Not possible: Setpoint holds no cordon on this node." in page
    assert "Runs this node again, from the beginning." in page
    done = rollout.steps.get(node_name="n1")
    page = client.get(f"/rollouts/R-{rollout.number}/steps/{done.pk}/").content.decode()
    assert "it is succeeded, and only a failed or held node is tried again" in page


def test_a_list_of_steps_asks_as_many_queries_for_many_as_for_few(world: World):
    client = TokenClient(world.operator)
    few = world.run(world.started(world.plan(canary=0, batch="3")))
    more_nodes(world, 60)
    many = world.started(world.plan(world.revision({"vm.swappiness": "20"}), canary=0))

    def queries(rollout: Rollout) -> int:
        with CaptureQueriesContext(
            connection,
        ) as caught:
            assert client.get(f"/api/v1/rollouts/{rollout.pk}/steps?limit=100").status_code == 200
        return len(caught)

    assert queries(many) <= queries(few)
