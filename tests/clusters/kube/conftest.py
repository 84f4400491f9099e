from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from clusters.kube.fleet import KubeFleet
from clusters.net.credentials import Credentials
from tests.clusters.kube.scripted import (
    AUTHORITY,
    HERE,
    PATIENCE_SECONDS,
    Script,
    Server,
)


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[KubeFleet, Server]]]:
    servers: list[Server] = []
    fleets: list[KubeFleet] = []

    def start(say: Script, *, timeout: float = PATIENCE_SECONDS, **how: str) -> tuple[KubeFleet, Server]:
        servers.append(Server(say, **how))
        credentials = Credentials(server=f"https://127.0.0.1:{servers[-1].port}", ca=AUTHORITY.pem, token="t")
        fleets.append(KubeFleet(credentials, policy=HERE, timeout=timeout))
        return fleets[-1], servers[-1]

    yield start
    for fleet in fleets:
        fleet.close()
    for server in servers:
        server.close()
