from __future__ import annotations

import pytest

from tests.agent.network.node import NetworkAgent, NetworkNode


@pytest.fixture
def kernel() -> NetworkNode:
    return NetworkNode()


@pytest.fixture
def agent(kernel: NetworkNode) -> NetworkAgent:
    return NetworkAgent(kernel)
