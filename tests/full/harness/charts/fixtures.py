"""`stage`: a whole Setpoint with the helm that the module names in HELM, and the real charts in its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from components.helm import client
from tests.controlplane import helm4
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.charts import stage as charts_stage
from tests.full.harness.charts.cases import ARCHIVES, Case
from tests.full.harness.charts.stage import NODES, Stage
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import Site


def program(helm: str) -> client.Helm:
    """Return helm v3 or v4. Skips where it is not built."""
    if helm == "v3":
        return client.program()
    return client.Helm(helm4.program(), "v4.")


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest, deployed: Plane, cluster_admin: Admin, postgres: Postgres, redis_server: Redis
) -> Iterator[Site]:
    """A site with the times of production: real charts have hundreds of objects."""
    settings = {"SETPOINT_SWEEP_SECONDS": "1", "SETPOINT_HELM": program(request.module.HELM).program}
    with Installation(postgres.url, redis_server.url, settings) as installation:
        opened = Site(deployed, cluster_admin, installation)
        try:
            yield opened.open()
        finally:
            opened.close()


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest,
    site: Site,
    deployed: Plane,
    cluster_admin: Admin,
    make_fleet: Callable[..., KwokFleet],
) -> Iterator[Stage]:
    if not ARCHIVES.is_dir():
        pytest.skip(f"needs charts: there are none in {ARCHIVES}")
    make_fleet("charts", *NODES)
    pool = site.pool(pool="charts")
    with charts_stage.staged(site, deployed, cluster_admin, program(request.module.HELM), pool) as made:
        yield made


@pytest.fixture
def tidied(stage: Stage, case: Case) -> Iterator[Stage]:
    """`stage`, left without a trace of the case's component."""
    stage.known = stage.definitions()
    yield stage
    charts_stage.tidy(stage, case)
