"""A simulated cluster that answers at an address, and the administrator who connects it."""

from __future__ import annotations

import pytest

from clusters.connection import registry
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.services.connecting import URL, person


@pytest.fixture
def admin():
    return person("ada", ("admin", "*"))


@pytest.fixture
def sim():
    """A cluster that answers at URL, equipped and with one node."""
    cluster = SimCluster(name="atlas")
    cluster.add_node("n1")
    cluster.tick(60)
    with registry.override(URL, SimFleet(cluster)):
        yield cluster
