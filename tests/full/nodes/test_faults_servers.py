"""PostgreSQL, Redis and the API server go away in the middle of a rollout: it ends as if they had not."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from contract.nodetuning import Status
from tests.controlplane.plane import Plane
from tests.full.harness.client import eventually
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import Site

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("judged")]
NODES = ("server-1", "server-2", "server-3", "server-4")
FRESH_SECONDS = 31.0
"""A second more than the default of SETPOINT_FRESH_SECONDS."""
_serial = itertools.count(1)


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., KwokFleet]) -> KwokFleet:
    return make_fleet("servers", *NODES)


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
        tuning = site.cluster_admin.get("nodetunings", node)
        assert Status.from_json(tuning["status"]).observed["hugepages-2Mi"] == wanted, (
            tuning["spec"],
            tuning["status"],
        )
    return rollout


@pytest.mark.long
def test_a_restarted_database_costs_time_only(site: Site, fleet: KwokFleet, postgres: Postgres):
    through(site, fleet, lambda: postgres.restart(down_seconds=3))


def test_a_crashed_database_costs_time_only(site: Site, fleet: KwokFleet, postgres: Postgres):
    def fault() -> None:
        postgres.crash()
        postgres.start()

    through(site, fleet, fault)


@pytest.mark.long
def test_a_flushed_broker_costs_a_sweep(site: Site, fleet: KwokFleet, redis_server: Redis):
    def fault() -> None:
        for _ in range(3):
            redis_server.flush()

    through(site, fleet, fault)


@pytest.mark.long
def test_a_broker_that_is_away_costs_time_only(site: Site, fleet: KwokFleet, redis_server: Redis):
    through(site, fleet, lambda: redis_server.restart(down_seconds=3))


@pytest.fixture
def killed(redis_server: Redis) -> Iterator[None]:
    redis_server.crash()
    yield
    redis_server.start()


@pytest.fixture
def frozen(redis_server: Redis) -> Iterator[None]:
    os.kill(redis_server.pid, signal.SIGSTOP)
    yield
    os.kill(redis_server.pid, signal.SIGCONT)


@pytest.fixture
def full(redis_server: Redis) -> Iterator[None]:
    assert redis_server.ask("CONFIG SET maxmemory 1") == "+OK"
    yield
    assert redis_server.ask("CONFIG SET maxmemory 0") == "+OK"


@pytest.mark.parametrize("fault", ["frozen", "full", "killed"])
def test_a_rollout_without_the_broker_ends_and_each_step_is_done_once(
    site: Site, fleet: KwokFleet, request: pytest.FixtureRequest, fault: str
):
    """The broker is away from before its plan until after its end: no request fails, and a worker finds what is due."""
    request.getfixturevalue(fault)
    wanted = str(40 + next(_serial))
    pool, revision = site.pool(pool="servers"), site.revision({"vm.swappiness": wanted})
    rollout = site.rollout_of(pool, revision, canary=1, batch="1")
    if fault == "killed":  # and with the broker the worker that sweeps in its place: another does, once its lease ends
        site.setpoint.kill("worker")
        site.setpoint.start("worker")
    assert site.operator.raw("POST", f"clusters/{site.cluster['id']}/actions/refresh")[0] == 202
    for verb in ("pause", "resume"):  # 409: it has not begun, or has ended
        assert site.operator.raw("POST", f"rollouts/{rollout}/actions/{verb}", {})[0] in (200, 202, 409)
    site.until(rollout, "succeeded")
    assert {step["attempt"] for step in site.steps(rollout).values()} == {1}
    for node in NODES:
        tuning = site.cluster_admin.get("nodetunings", node)
        assert Status.from_json(tuning["status"]).observed["vm.swappiness"] == wanted
    assert broker_state(site) != "ok", "it was not away"
    assert site.setpoint.status("/readyz") == 200, "pages stay"


@pytest.mark.long
def test_messages_bring_sweeps_again_once_the_broker_is_back(site: Site, fleet: KwokFleet):
    eventually(lambda: broker_state(site) == "ok", lambda: site.setpoint.log("worker") + site.setpoint.log("beat"))


def broker_state(site: Site) -> str:
    with urllib.request.urlopen(f"{site.setpoint.url}/readyz", timeout=10) as answer:
        return str(json.load(answer)["checks"]["broker"])


@pytest.mark.long
def test_a_dead_watch_slows_a_rollout_and_never_misleads_it(site: Site, fleet: KwokFleet):
    """Law 11: what the rows say is too old to decide upon, so the engine looks for itself."""
    site.await_observed(NODES)
    # What is live alone: each look past the watch costs FRESH_SECONDS, and a restart of the kubelet takes several.
    tuning = site.cluster_admin.get("nodetunings", NODES[0])
    kept = Status.from_json(tuning["status"]).observed["hugepages-2Mi"]
    pool, revision = site.pool(pool="servers"), site.revision({"vm.swappiness": "41", "hugepages-2Mi": kept})
    plan = site.plan(pool, revision, canary=0, batch="100%")
    site.approve(plan)
    site.setpoint.kill("watch")
    # What happens now, no row knows; and what rows say becomes too old to decide upon.
    moved = NODES[0]
    before = site.cluster_admin.get("nodetunings", moved)["spec"]
    site.cluster_admin.patch("nodes", moved, {"spec": {"unschedulable": True}})
    time.sleep(FRESH_SECONDS)
    try:
        rollout = site.start(plan)
        site.until_step(rollout, moved, "queued", says="cordoned by another party")
        assert site.cluster_admin.get("nodetunings", moved)["spec"] == before
        site.cluster_admin.patch("nodes", moved, {"spec": {"unschedulable": None}})
        site.until(rollout, "succeeded", seconds=240)
    finally:
        site.setpoint.start("watch")


def test_an_api_server_that_is_away_costs_time_only(site: Site, fleet: KwokFleet, deployed: Plane):
    """Longer than a node's grace period of 50 s: Leases have run out and nodes are not Ready when it is back."""
    through(site, fleet, lambda: deployed.restart("kube-apiserver", down_seconds=60))
