"""Fleet runs over two real clusters of one Setpoint: its processes start each ring by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.controlplane.admin import Admin
from tests.controlplane.fixtures import deploy
from tests.controlplane.plane import Plane
from tests.full.harness.client import Problem, at_once, eventually
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import Site

pytestmark = pytest.mark.full
POOL = "ringed"
KEY = "vm.swappiness"


@pytest.fixture(scope="module")
def second(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A second cluster, with a control plane of its own."""
    with Plane(garbage_percent=400) as plane:
        deploy(plane)
        admin = Admin(plane)
        try:
            yield site.beside(plane, admin, name="borea", environment="production")
        finally:
            if site.setpoint.is_running("watch"):
                site.setpoint.stop("watch")  # before its API server is gone
            admin.close()


@pytest.fixture(scope="module")
def sites(site: Site, second: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Site]]:
    """Both clusters with a node whose agent is at work."""
    fleets = []
    try:
        for number, place in enumerate((site, second), start=1):
            fleet = KwokFleet(place.plane, place.cluster_admin, tmp_path_factory.mktemp("agents"), POOL)
            fleets.append(fleet)
            fleet.add(f"ring-{number}")
            fleet.start()
            place.await_observed([f"ring-{number}"])
        yield site, second
    finally:
        for fleet in fleets:
            fleet.close()


@pytest.fixture(autouse=True)
def judged(sites: tuple[Site, Site]) -> Iterator[None]:
    """Require that both API servers' audit logs show that every rollout kept every law."""
    yield
    for place in sites:
        place.judge().must_hold()


class Run:
    """A fleet run of one plan in each cluster, the first cluster's ahead."""

    def __init__(self, sites: tuple[Site, Site], value: str) -> None:
        self.sites, self.site = sites, sites[0]
        revision = self.site.revision({KEY: value})
        self.plans = [place.plan(place.pool(pool=POOL), revision) for place in sites]
        rings = [{"name": f"ring {n}", "soak_minutes": 0, "plans": [p["id"]]} for n, p in enumerate(self.plans, 1)]
        self.id = self.site.operator.post("fleet-runs", {"name": f"to {value}", "rings": rings})["id"]

    def act(self, verb: str, by: Any = None, **body: Any) -> Any:
        return (by or self.site.operator).post(f"fleet-runs/{self.id}/actions/{verb}", body or None)

    def read(self) -> dict[str, Any]:
        return dict(self.site.operator.get(f"fleet-runs/{self.id}"))

    def rollout(self, number: int) -> dict[str, Any] | None:
        """Return the one rollout of the plan of ring `number`."""
        place, plan = self.sites[number - 1], self.plans[number - 1]
        rows = place.operator.every("rollouts", cluster=place.cluster["id"])
        mine = [row for row in rows if row["plan"] == plan["id"]]
        assert len(mine) <= 1, mine
        return mine[0] if mine else None

    def until(self, status: str) -> None:
        eventually(lambda: self.read()["status"] == status, self.story, seconds=120)

    def was_in_order(self) -> None:
        """Require that both rollouts succeeded, and that the second began after the first had ended."""
        first, then = [rollout for number in (1, 2) if (rollout := self.rollout(number))]
        assert first["status"] == then["status"] == "succeeded"
        assert datetime.fromisoformat(then["created_at"]) >= datetime.fromisoformat(first["finished_at"])

    def story(self) -> str:
        rollouts = [rollout for number in (1, 2) if (rollout := self.rollout(number))]
        return "\n".join([str(self.read()), *(self.site.story(rollout["id"]) for rollout in rollouts)])


def test_the_second_cluster_is_changed_once_the_first_has_finished_though_the_worker_is_killed(
    sites: tuple[Site, Site],
) -> None:
    run = Run(sites, "17")
    for plan in run.plans:
        run.site.approve(plan)
    with pytest.raises(Problem, match="has not been started"):
        run.site.start(run.plans[0])
    assert run.site.operator.get(f"plans/{run.plans[1]['id']}")["ring"] == 2

    run.act("start")
    eventually(lambda: run.rollout(1), run.story)
    run.site.setpoint.kill("worker")
    run.site.setpoint.start("worker")
    run.until("succeeded")

    run.was_in_order()
    for number, place in enumerate(sites, start=1):
        eventually(lambda place=place, number=number: place.observed(f"ring-{number}", KEY) == "17", run.story)


def test_verbs_of_two_people_at_once_contradict_each_other_in_words_and_start_everything_once(
    sites: tuple[Site, Site],
) -> None:
    """Each answer is done or refused: no deadlock between the run's row and its plans', and no error."""
    run = Run(sites, "27")
    for plan in run.plans:
        run.site.approve(plan)
    author = run.site.author

    starts = at_once(lambda: run.act("start"), lambda: run.act("start", author), lambda: run.act("start"))
    assert [a.status for a in starts if isinstance(a, Problem)] == [409, 409], starts
    for _ in range(4):
        answers = at_once(
            lambda: run.act("hold", reason="a look"),
            lambda: run.act("hold", author, reason="another look"),
            lambda: run.site.start(run.plans[0]),
            lambda: run.site.start(run.plans[1]),
        )
        assert {a.status for a in answers if isinstance(a, Problem)} <= {409}, answers
        released = at_once(lambda: run.act("release"), lambda: run.act("release", author))
        assert {a.status for a in released if isinstance(a, Problem)} <= {409}, released
        assert run.read()["status"] in ("running", "succeeded")

    run.until("succeeded")
    run.was_in_order()
