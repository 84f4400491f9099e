"""Fixtures of tests about approvals."""

from __future__ import annotations

import pytest

from gpus.models import Team
from jobs.approvals import reviews
from jobs.models import Plan
from tests.jobs.conftest import World


@pytest.fixture
def plan(world: World) -> Plan:
    """A plan in review, asked by the operator; `author` wrote the revision."""
    return reviews.request(world.plan(), by=world.operator, message="Less swapping")


@pytest.fixture
def speech() -> Team:
    return Team.objects.create(name="Speech")


@pytest.fixture
def vision() -> Team:
    return Team.objects.create(name="Vision")
