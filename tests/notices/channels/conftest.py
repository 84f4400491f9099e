"""A receiver of webhooks, an administrator, and a cluster."""

from __future__ import annotations

import pytest

from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.notices.channels.receiving import Receiver


@pytest.fixture
def receiver(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    server = Receiver()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def admin(clock):
    return UserFactory(roles=["admin"])


@pytest.fixture
def cluster(clock):
    return ClusterFactory(name="atlas", environment="production")
