"""Fixtures of tests about policy objects in a rollout."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.conftest import World
from tests.jobs.policy_steps import bring_queues
from tests.jobs.releases import Releases


@pytest.fixture
def world(make_world: Any) -> World:
    """One node is enough: these laws are about the cluster itself."""
    made: World = make_world(nodes=1)
    return made


@pytest.fixture
def releases(world: World, monkeypatch: Any) -> Releases:
    made = Releases().install(monkeypatch)
    made.during["volcano"] = lambda stop: bring_queues(world)
    return made
