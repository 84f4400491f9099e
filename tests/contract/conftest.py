"""One suite, several doors: what they disagree on is a bug in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.kube.apiserver import ApiServer
from tests.contract.door import DoorWorld
from tests.contract.objects import Objects
from tests.contract.worlds import RealWorld, SimWorld, World
from tests.controlplane.plane import LOOPBACK


@pytest.fixture(params=["sim", "door", pytest.param("real", marks=pytest.mark.full)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World
    if request.param == "sim":
        made = SimWorld()
    elif request.param == "door":
        made = DoorWorld()
    else:
        made = RealWorld(request.getfixturevalue("deployed"), request.getfixturevalue("cluster_admin"))
    yield made
    made.clean()


@pytest.fixture(params=["door", pytest.param("real", marks=pytest.mark.full)])
def over_http(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A world with its API server as `server`, and raw requests to it as `objects`."""
    made: Any
    if request.param == "door":
        made = DoorWorld()
        credentials = made.entrance.credentials()
    else:
        plane = request.getfixturevalue("deployed")
        made, credentials = RealWorld(plane, request.getfixturevalue("cluster_admin")), plane.admin
    made.server = ApiServer(credentials, policy=LOOPBACK, timeout=20)
    made.objects = Objects(made.server)
    yield made
    made.server.close()
    made.clean()
