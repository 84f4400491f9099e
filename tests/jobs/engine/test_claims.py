"""Claims of a slice: of steps that wait for an answer, only those with news."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import Node, NodeTuning
from common.clock import now
from jobs.engine import claims, reconcile
from jobs.models import Rollout, Step

VERIFYING = Step.Status.VERIFYING


def test_a_step_that_waits_for_its_agent_is_taken_up_only_when_there_is_news(world):
    rollout = _all_waiting(world)

    assert _taken(rollout) == []

    tuning = NodeTuning.objects.get(node=world.node("n1"))
    tuning.observed_generation = rollout.steps.get(node_name="n1").generation
    tuning.save()
    assert _taken(rollout) == ["n1"], "its agent has answered"

    Node.objects.filter(pk=world.node("n2").pk).update(changed_at=now() + timedelta(seconds=1))
    assert _taken(rollout) == ["n1", "n2"], "its node was cordoned, say, or has booted"

    Node.objects.filter(pk=world.node("n3").pk).update(gone_at=now())
    assert _taken(rollout) == ["n1", "n2", "n3"], "its node is gone"


def test_a_step_that_waits_for_its_agent_is_taken_up_at_its_deadline_whatever_happens(world):
    rollout = _all_waiting(world)
    rollout.steps.filter(node_name="n2").update(deadline_at=now() - timedelta(seconds=1))

    assert _taken(rollout) == ["n2"]


def _all_waiting(world) -> Rollout:
    """Three nodes have their spec, and no agent has answered yet."""
    rollout = world.started(canary=0, batch="100%")
    world.clock.forward(1)  # the nodes' rows are older than the steps' state
    world.slice(rollout)
    assert set(rollout.steps.values_list("status", flat=True)) == {VERIFYING}
    assert "" not in rollout.steps.values_list("waiting_for", flat=True), "each was looked at once"
    return rollout


def _taken(rollout: Rollout) -> list[str]:
    token, _, steps = claims.claim(rollout, VERIFYING)
    claims.release(token)
    return sorted(step.node_name for step in steps)


def test_a_step_whose_agent_never_answers_fails_at_its_deadline_and_says_so(world):
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(canary=0, batch="100%", max_failures=3, step_deadline_seconds=60)
    world.clock.forward(1)  # the nodes' rows are older than the steps' state
    world.run(rollout, seconds=59)
    assert rollout.steps.get(node_name="n1").status == VERIFYING

    world.run(rollout, seconds=30)

    step = rollout.steps.get(node_name="n1")
    assert step.status == "failed"
    assert step.error.startswith("Gave up after 1 min"), step.error
    assert step.error.endswith("Waiting for the agent to read the values back from the kernel.")


def test_a_step_goes_on_when_its_node_gets_the_label_that_was_missing(make_world):
    world = make_world(nodes=1)
    labels = {"setpoint.example/tuned": "yes"}
    rollout = world.started(world.plan(world.revision(labels=labels), canary=0))
    world.until(rollout, VERIFYING)
    uid = world.node("n1").uid
    world.fleet.decorate("n1", uid, labels={}, annotations={})
    world.tick(5)
    step = _waits(world, rollout, "Waiting to see the label setpoint.example/tuned=yes.")
    answer = NodeTuning.objects.get(node=step.node).resource_version

    world.fleet.decorate("n1", uid, labels=labels, annotations={})
    world.look()
    world.slice(rollout)

    assert rollout.steps.get().status == "succeeded"
    assert NodeTuning.objects.get(node=step.node).resource_version == answer, "its agent said nothing new"


def test_a_step_goes_on_when_its_kubelet_offers_the_pages_that_were_missing(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision({"hugepages-2Mi": ">= 1024"}), canary=0))
    world.until(rollout, VERIFYING)
    node = Node.objects.filter(pk=world.node("n1").pk)
    offered = node.get().allocatable
    node.update(allocatable=offered | {"hugepages-2Mi": "0"})
    step = _waits(world, rollout, "The kubelet offers 0 MiB of hugepages-2Mi, wanted 1024 pages.")
    answer = NodeTuning.objects.get(node=step.node).resource_version

    node.update(allocatable=offered | {"hugepages-2Mi": "2Gi"}, changed_at=now())
    world.slice(rollout)

    assert rollout.steps.get().status != VERIFYING
    assert NodeTuning.objects.get(node=step.node).resource_version == answer


def test_a_step_whose_node_boots_is_told_though_its_agent_does_not_answer(make_world):
    world = make_world(nodes=1)
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(world.plan(canary=0))
    world.until(rollout, VERIFYING)
    _waits(world, rollout, "Waiting for the agent to read the values back from the kernel.")

    Node.objects.filter(name="n1").update(boot_id="another-boot", changed_at=now())
    world.slice(rollout)

    step = rollout.steps.get()
    assert step.status == "failed"
    assert "was rebooted meanwhile" in step.error


def test_with_a_dead_watch_a_step_that_waits_for_its_agent_is_read_again_and_goes_on(world):
    rollout = _all_waiting(world)
    world.sim.tick(settings.SETPOINT_FRESH_SECONDS + 1)  # the agents answer, and no process writes it into rows
    assert _taken(rollout) == []

    world.slice(rollout)

    assert set(rollout.steps.values_list("status", flat=True)) == {"succeeded"}


def test_a_rollout_with_no_place_free_does_not_read_its_whole_plan_again(world):
    world.sim.agents.restart("n1", "hanging")
    rollout = world.started(canary=0, batch="100%", max_in_flight=1, order="name")
    world.until(rollout, VERIFYING)
    world.slice(rollout)
    world.clock.forward(1)

    with CaptureQueriesContext(connection) as queries:
        reconcile.advance(rollout.pk)

    assert rollout.steps.filter(status=Step.Status.QUEUED).count() == 2
    assert queries.captured_queries
    assert not [query["sql"] for query in queries.captured_queries if 'FROM "jobs_plannode"' in query["sql"]]


def _waits(world, rollout: Rollout, sentence: str) -> Step:
    """The one step of the rollout, once it has been looked at and waits in these words."""
    world.slice(rollout)
    step = rollout.steps.select_related("node").get()
    assert (step.status, step.waiting_for) == (VERIFYING, sentence)
    return step
