"""Which steps a slice takes up: of those that wait for an answer, only the ones that there is news of."""

from __future__ import annotations

from datetime import timedelta

from clusters.models import Node, NodeTuning
from common.clock import now
from jobs.engine import claims
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
