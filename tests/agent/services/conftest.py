"""A node whose containerd and kubelet read their files when they start, and its agent."""

from __future__ import annotations

import pytest

from tests.agent.kernel import Agent
from tests.agent.services.node import ServicesNode


@pytest.fixture
def kernel():
    return ServicesNode()


@pytest.fixture
def agent(kernel):
    return Agent(kernel)
