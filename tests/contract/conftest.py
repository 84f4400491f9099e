"""One suite, several doors: what they disagree on is a bug in the simulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.door import DoorWorld
from tests.contract.worlds import RealWorld, SimWorld, World


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
