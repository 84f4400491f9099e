"""Nodes that join a pool, and rollouts that take them in, for tests."""

from __future__ import annotations

from typing import Any

from jobs.models import Rollout
from tests.jobs.conftest import World


def join(world: World, *names: str, pool: str = "train") -> None:
    """New machines with these names; their agents answer."""
    for name in names:
        world.sim.add_node(name, gpus=8, labels={"pool": pool})
    world.tick(5)
    world.observe()


def running(world: World, settings: dict[str, str] | None = None, **strategy: Any) -> Rollout:
    """A rollout whose first node is done and whose others wait; it may take nodes that join."""
    fields: dict[str, Any] = {
        "canary": 1,
        "batch": "1",
        "order": "name",
        "soak_seconds": 60,
        "include_joining": True,
    } | strategy
    rollout = world.started(world.plan(world.revision(settings), **fields))
    world.until(rollout, "succeeded")
    return rollout
