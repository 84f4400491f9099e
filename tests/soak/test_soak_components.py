"""Components that a seed decides, while helm, its workers, the worker of the steps and the API server are killed.

COUNT rollouts (default 8) from SEED (default 1), the first half with helm v3 and the rest with v4, on a real control
plane: `make soak` runs 100. Each must end as wanted, with no release left pending, every object of it whole and
nothing beside, and the API server's audit log must show that every law held meanwhile.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.chaos import HelmChaos
from tests.full.client import Problem, eventually
from tests.full.equipping import NAMESPACES, equipped
from tests.full.helm_releases import Releases, program, whole, with_helm_4
from tests.full.kwok_fleet import KwokFleet
from tests.full.site import ENDED, Site

pytestmark = pytest.mark.full
SEED = os.environ.get("SEED", "1")
COUNT = int(os.environ.get("COUNT", "8"))
NODES = ("soak-helm-1", "soak-helm-2")
SECONDS = 240.0
"""For one rollout: about 10 s when nobody is killed."""


@pytest.fixture(scope="module")
def stage(site: Site, deployed: Plane, cluster_admin: Admin) -> Iterator[Releases]:
    """Two workers for helm, of which one is killed now and then."""
    with equipped(site, deployed, cluster_admin, workers=("helm", "helm-2")):
        yield Releases(deployed)
        for name, namespace in NAMESPACES.items():
            program(deployed, "uninstall", name, f"--namespace={namespace}", "--ignore-not-found", "--no-hooks")


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., KwokFleet]) -> KwokFleet:
    return make_fleet("soak-helm", *NODES)


@pytest.fixture(scope="module")
def pool(site: Site, fleet: KwokFleet) -> int:
    return site.pool(pool="soak-helm")


class Wish:
    """What rollout number `number` of this seed asks for: always something that no release has."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(f"{SEED}/{number}")
        self.components = sorted(self.random.sample(sorted(NAMESPACES), self.random.choice((1, 2, 2, 3))))
        self.values: dict[str, dict[str, Any]] = {
            # The budget is one, and its chart would restart two nodes' agents at once.
            "cilium": {"MTU": 1400 + number, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}},
            "volcano": {"basic": {"image_registry": f"registry.example/soak-{number}"}},
            "gpu-operator": {
                "operator": {"repository": f"registry.example/soak-{number}"},
                "clusterPolicy": {"deployCR": False},
            },
        }
        self.settings = {"vm.swappiness": str(10 + number % 80)} if self.random.random() < 0.5 else {}
        self.reverts = self.random.random() < 0.4
        self.kills = self.random.randint(2, 5)

    @property
    def source(self) -> str:
        return "components:\n" + "".join(
            f"  {name}:\n    values: {yaml.safe_dump(self.values[name], default_flow_style=True)}"
            for name in self.components
        )


def run(site: Site, rollout: str, chaos: HelmChaos, *ends: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        found = eventually(lambda: site.rollout(rollout), seconds=60)
        if found["status"] in ends:
            return
        told = f"{chaos.done}\n{site.story(rollout)}"
        assert found["status"] not in (*ENDED, "stopped"), f"it {found['status']}\n{told}"
        assert time.monotonic() < deadline, f"no end after {SECONDS} s\n{told}"
        time.sleep(0.5)


def planned(site: Site, pool: int, wish: Wish) -> dict[str, Any]:
    """As soon as Setpoint sees the cluster again, whose API server the one before may have killed last."""
    revision = site.revision(wish.settings, extra=wish.source)

    def made() -> dict[str, Any] | None:
        try:
            return site.plan(pool, revision, canary=0, batch="100%")
        except Problem as error:
            if error.status != 409:
                raise
            return None

    return dict(eventually(made))


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_soak_components_end_well_whoever_is_killed(
    site: Site, stage: Releases, fleet: KwokFleet, pool: int, number: int
):
    wish = Wish(number)
    if number > COUNT // 2:
        with_helm_4(site)
    site.await_observed(NODES)
    before = {name: stage.values(name) for name in NAMESPACES}
    plan = planned(site, pool, wish)
    assert [f for f in plan["findings"] if f["severity"] == "block"] == []
    site.approve(plan)
    chaos = HelmChaos(site.setpoint, fleet, stage.plane, f"{SEED}/{number}", kills=wish.kills)
    rollout = site.start(plan)
    chaos.start()
    try:
        run(site, rollout, chaos, "succeeded")
        assert {name: stage.values(name) for name in wish.components} == {n: wish.values[n] for n in wish.components}
        whole(stage, list(NAMESPACES))
        if wish.reverts:
            site.act(rollout, "revert")
            run(site, rollout, chaos, "reverted")
            assert {name: stage.values(name) for name in NAMESPACES} == before
    finally:
        chaos.stop()
        print(chaos.done, f"{chaos.met} helm programs met")
        if site.rollout(rollout)["status"] not in ENDED:
            site.give_up(rollout)
    whole(stage, list(NAMESPACES))
    judge = site.judge()
    judge.must_hold()
    assert judge.helm_writes
