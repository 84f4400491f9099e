"""A simulated cluster, and the port to it."""

from __future__ import annotations

import pytest

from simfleet.core import SimCluster
from simfleet.memory import SimFleet


@pytest.fixture
def cluster() -> SimCluster:
    return SimCluster(seed=5)


@pytest.fixture
def fleet(cluster) -> SimFleet:
    return SimFleet(cluster)
