"""`helm`: components are tried with helm v3 and v4."""

from __future__ import annotations

from typing import Any

import pytest

from components.helm import client
from tests.controlplane import helm4


@pytest.fixture(params=["v3", "v4"])
def helm(request: pytest.FixtureRequest, settings: Any) -> str:
    """The helm that Setpoint has from now on."""
    if request.param == "v4":
        settings.SETPOINT_HELM = helm4.program()
    assert client.program().is_v4 == (request.param == "v4")
    return str(request.param)
