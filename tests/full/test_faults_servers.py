"""PostgreSQL, Redis and the API server go away in the middle of a rollout: it ends as if they had not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.client import eventually
from tests.full.kwok_fleet import KwokFleet
from tests.full.servers import Postgres, Redis
from tests.full.site import Site

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("judged")]
NODES = ("server-1", "server-2", "server-3", "server-4")
_serial = itertools.count(1)


@pytest.fixture(scope="module")
def fleet(
    site: Site, deployed: Plane, cluster_admin: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KwokFleet]:
    made = KwokFleet(deployed, cluster_admin, Path(tmp_path_factory.mktemp("agents")), "servers")
    try:
        made.add(*NODES)
        made.start()
        site.await_observed(NODES)
        yield made
    finally:
        made.close()


def through(site: Site, fleet: KwokFleet, fault: Callable[[], None]) -> str:
    """A rollout of a setting that restarts kubelets, node by node, with a fault once the first node is done."""
    wanted = str(100 + next(_serial))
    pool, revision = site.pool(pool="servers"), site.revision({"hugepages-2Mi": wanted, "vm.swappiness": wanted[-2:]})
    rollout = site.rollout_of(pool, revision, canary=1, batch="1")
    eventually(
        lambda: any(step["status"] == "succeeded" for step in site.steps(rollout).values()),
        lambda: site.story(rollout),
        pause=0.05,
    )
    assert site.rollout(rollout)["status"] == "running", "the fault must meet it under way"

    fault()

    site.setpoint.wait_ready()
    site.until(rollout, "succeeded")
    assert {step["attempt"] for step in site.steps(rollout).values()} == {1}
    for node in NODES:
        found = site.cluster_admin.get("nodetunings", node)["status"]["observed"]
        assert found["hugepages-2Mi"] == wanted
    return rollout


def test_a_restarted_database_costs_time_only(site: Site, fleet: KwokFleet, postgres: Postgres):
    through(site, fleet, lambda: postgres.restart(down_seconds=3))


def test_a_crashed_database_costs_time_only(site: Site, fleet: KwokFleet, postgres: Postgres):
    def fault() -> None:
        postgres.crash()
        postgres.start()

    through(site, fleet, fault)


def test_a_flushed_broker_costs_a_sweep(site: Site, fleet: KwokFleet, redis_server: Redis):
    def fault() -> None:
        for _ in range(3):
            redis_server.flush()

    through(site, fleet, fault)


def test_a_broker_that_is_away_costs_time_only(site: Site, fleet: KwokFleet, redis_server: Redis):
    through(site, fleet, lambda: redis_server.restart(down_seconds=3))


def test_an_api_server_that_is_away_costs_time_only(site: Site, fleet: KwokFleet, deployed: Plane):
    through(site, fleet, lambda: deployed.restart("kube-apiserver"))
