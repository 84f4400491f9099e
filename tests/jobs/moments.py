"""A world at one moment of a step, for tests about what happens just then."""

from __future__ import annotations

from jobs.engine import reconcile
from jobs.models import Rollout, Step
from tests.jobs.conftest import World


def reach(world: World, rollout: Rollout, status: str, node: str = "n1") -> Step:
    """Stop at the first moment of this status: one transition a slice, and time only where nothing moves."""
    for _ in range(300):
        before = rollout.steps.get(node_name=node)
        if before.status == status:
            return before
        reconcile.advance(rollout.pk)
        if rollout.steps.get(node_name=node).status == before.status:
            world.tick(5)
    raise AssertionError(f"never {status}: {before.status} {before.waiting_for} {before.error}")


def is_cordoned(world: World, node: str = "n1") -> bool:
    return bool(world.sim.node(node)["spec"].get("unschedulable"))
