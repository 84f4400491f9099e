"""Reading of a source whose Prometheus answers as a test says."""

from __future__ import annotations

import pytest

from clusters.connection import registry
from gpus.models import TelemetrySource
from gpus.services import polling
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.gpus.telemetry.prometheus_server import AUTHORITY, Kind, Say, Server, good


@pytest.fixture
def read(settings, clock):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    servers: list[Server] = []
    cluster = ClusterFactory()

    def once(say: Say = good, *, secret: str = "", **fields: object) -> TelemetrySource:
        servers.append(server := Server(say))
        clock.forward(seconds=400)
        source, _ = TelemetrySource.objects.get_or_create(cluster=cluster)
        set_ = {"kind": Kind.PROMETHEUS, "url": server.url, "ca": AUTHORITY.pem, "due_at": clock.at, **fields}
        for name, value in set_.items():
            setattr(source, name, value)
        source.set_secret(secret)
        source.save()
        assert polling.tick(source.pk)
        source.refresh_from_db()
        source.server = server
        return source

    with registry.override(cluster.pk, SimFleet(SimCluster(seed=3))):
        yield once
    for server in servers:
        server.close()
