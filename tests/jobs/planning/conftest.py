"""Fixtures of tests about plans."""

from __future__ import annotations

import pytest

from jobs import tasks
from jobs.models import Plan
from tests.jobs.conftest import World
from tests.jobs.joining import join


@pytest.fixture
def assigned(world: World) -> World:
    """Three nodes that run their pool's revision."""
    rollout = world.run(world.started(canary=0, batch="3"))
    assert rollout.status == "succeeded"
    return world


@pytest.fixture
def draft(assigned: World) -> Plan:
    join(assigned, "n4")
    assigned.tick(60)
    tasks.draft_joining()
    return Plan.objects.latest("number")
