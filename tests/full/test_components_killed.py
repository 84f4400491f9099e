"""A component's whole life under kills, with either helm: installed, changed, removed, installed again.

At moments that SEED decides, helm, its worker, the worker of the steps, the web process and the API server itself are
killed. Each rollout ends as wanted, or says why it did not and is done by planning it again; nothing is left pending,
missing or beside, and no law is broken meanwhile. `make soak` does more of it with upgrades and reverts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import urllib3

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
KILLS = int(os.environ.get("KILLS", "3"))
"""For one rollout, of which there are eight."""
NODES = ("killed-1",)
NAMES = ("gpu-operator", "volcano")
"""Of one the definitions stay when it goes, of the other they go with it. Cilium is not removed where no other is."""
SECONDS = 300.0


class Killers(HelmChaos):
    VICTIMS: ClassVar = ("helm-program", "helm-program", "kube-apiserver", "kube-apiserver", "worker", "helm", "web")


@pytest.fixture(scope="module", params=["v3", "v4"])
def stage(request: pytest.FixtureRequest, site: Site, deployed: Plane, cluster_admin: Admin) -> Iterator[Releases]:
    with equipped(site, deployed, cluster_admin, workers=("helm", "helm-2")):
        if request.param == "v4":
            with_helm_4(site)
        yield Releases(deployed)
        for name in NAMES:
            program(deployed, "uninstall", name, f"--namespace={NAMESPACES[name]}", "--ignore-not-found", "--no-hooks")


@pytest.fixture(scope="module")
def pool(site: Site, make_fleet: Callable[..., KwokFleet]) -> int:
    make_fleet("killed", *NODES)
    return site.pool(pool="killed")


def patiently(ask: Callable[[], Any], site: Site) -> Any:
    """The web process may be away just now, and the cluster not seen yet."""

    def answered() -> Any:
        try:
            return ask()
        except (urllib3.exceptions.HTTPError, Problem) as error:
            if isinstance(error, Problem) and error.status != 409:
                raise
            return None

    return eventually(answered, lambda: "\n".join(site.complaints("web")), seconds=SECONDS)


def wish(part: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """The source, and the values that helm must have recorded."""
    if part == "remove":
        return "components:\n" + "".join(f"  {name}: {{remove: true}}\n" for name in NAMES), {}
    registry = f"registry.example/{part}"
    values: dict[str, dict[str, Any]] = {
        "volcano": {"basic": {"image_registry": registry}},
        "gpu-operator": {"operator": {"repository": registry}, "clusterPolicy": {"deployCR": False}},
    }
    return "components:\n" + "".join(f"  {name}: {{values: {values[name]}}}\n" for name in NAMES), values


def test_a_component_lives_through_kills_of_whatever_carries_it_out(
    site: Site, stage: Releases, pool: int, request: pytest.FixtureRequest
) -> None:
    for number, part in enumerate(("install", "change", "remove", "again")):
        source, values = wish(part)
        revision = site.revision({}, extra=source)
        for attempt in range(3):
            if carried_out(site, stage, pool, revision, f"{SEED}/{request.node.name}/{number}/{attempt}"):
                break
        else:
            raise AssertionError(f"{part} did not succeed in three plans")
        assert {name: stage.values(name) for name in NAMES} == {name: values.get(name) for name in NAMES}
        if part == "remove":
            eventually(
                lambda: not any(stage.live(name) for name in NAMES),
                lambda: {name: stage.live(name) for name in NAMES},
            )
        else:
            whole(stage, NAMES)
    judge = site.judge()
    judge.must_hold()
    assert judge.helm_writes


def carried_out(site: Site, stage: Releases, pool: int, revision: str, seed: str) -> bool:
    """Whether it succeeded. If not, each step says why, and the release can be planned again."""
    plan = patiently(lambda: site.plan(pool, revision), site)
    assert [f for f in plan["findings"] if f["severity"] == "block"] == [], plan["findings"]
    site.approve(plan)
    chaos = Killers(site.setpoint, None, stage.plane, seed, kills=KILLS)  # type: ignore[arg-type]
    rollout = site.start(plan)
    chaos.start()
    try:
        found = patiently(lambda: (r := site.rollout(rollout))["status"] in (*ENDED, "stopped") and r, site)
    finally:
        chaos.stop()
        print(chaos.done, f"{chaos.met} helm programs met")
        if site.rollout(rollout)["status"] not in ENDED:
            site.give_up(rollout)
    assert stage.pending() == []
    if found["status"] == "succeeded":
        return True
    failed = [step for step in site.steps(rollout).values() if step["status"] != "succeeded"]
    print(site.story(rollout))
    assert all(step["error"] for step in failed), site.story(rollout)
    return False
