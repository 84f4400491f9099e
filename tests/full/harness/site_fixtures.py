"""`site`: a whole Setpoint for one module of tests, on the run's one control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.fault_proxy import NOTHING, FaultProxy
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import SETTINGS, Site


@pytest.fixture(scope="module")
def site(deployed: Plane, cluster_admin: Admin, postgres: Postgres, redis_server: Redis) -> Iterator[Site]:
    with Installation(postgres.url, redis_server.url, SETTINGS) as installation:
        opened = Site(deployed, cluster_admin, installation)
        try:
            yield opened.open()
        finally:
            opened.close()


@pytest.fixture(scope="module")
def proxy(deployed: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    made = FaultProxy(deployed, tmp_path_factory.mktemp("proxy"), "faults").start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def proxied_site(
    deployed: Plane, cluster_admin: Admin, postgres: Postgres, redis_server: Redis, proxy: FaultProxy
) -> Iterator[Site]:
    """A whole Setpoint that reaches its cluster through a proxy of faults. Calls have the time that they have in
    production, where 5 s of latency is no time-out."""
    with Installation(postgres.url, redis_server.url, {"SETPOINT_SWEEP_SECONDS": "1"}) as installation:
        opened = Site(deployed, cluster_admin, installation, server=proxy.url)
        try:
            yield opened.open()
        finally:
            proxy.fault = NOTHING
            opened.close()


@pytest.fixture(scope="module")
def make_fleet(
    site: Site, deployed: Plane, cluster_admin: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., KwokFleet]]:
    """`make_fleet("train", "node-1", "node-2")`: nodes of that pool with agents at work, which Setpoint has heard."""
    made: list[KwokFleet] = []

    def make(pool: str, *names: str) -> KwokFleet:
        fleet = KwokFleet(deployed, cluster_admin, Path(tmp_path_factory.mktemp("agents")), pool)
        made.append(fleet)
        fleet.add(*names)
        fleet.start()
        site.await_observed(names)
        return fleet

    yield make
    for fleet in made:
        fleet.close()


@pytest.fixture
def judged(site: Site) -> Iterator[None]:
    """Require that the API server's audit log shows, after the test, that every rollout so far kept every law."""
    yield
    site.judge().must_hold()
