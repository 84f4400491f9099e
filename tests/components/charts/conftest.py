"""Servers of charts on loopback."""

from __future__ import annotations

import pytest

from tests.components.chart_server import ChartServer


@pytest.fixture
def server():
    made = ChartServer()
    yield made
    made.close()


@pytest.fixture
def elsewhere():
    made = ChartServer()
    yield made
    made.close()
