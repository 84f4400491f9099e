from __future__ import annotations

import pytest

from tests.agent.kernel import Agent, Kernel


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def agent(kernel: Kernel) -> Agent:
    return Agent(kernel)
