"""Components that a seed decides, while helm, its workers, the worker of the steps and the API server are killed.

COUNT rollouts (default 8) from SEED (default 1), the first half with helm v3 and the rest with v4, on a real control
plane: `make soak` runs 100. What is installed is upgraded or removed, what was removed is installed again, and any of
it is put back. Each must end as wanted, with no release left pending, every object of it whole (or gone) and nothing
beside, definitions and namespaces as the plan said, and the API server's audit log must show that every law held.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.chaos import HelmChaos
from tests.full.harness.client import Problem, eventually
from tests.full.harness.equipping import NAMESPACES, equipped
from tests.full.harness.helm_releases import Releases, program, whole, with_helm_4
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import ENDED, Site

pytestmark = [pytest.mark.full, pytest.mark.long]
SEED = os.environ.get("SEED", "1")
COUNT = int(os.environ.get("COUNT", "8"))
NODES = ("soak-helm-1", "soak-helm-2")
SECONDS = 600.0
"""For one rollout: about 10 s when no process is killed."""
OTHER_NETWORK = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kindnet, namespace: kube-system}
spec:
  selector: {matchLabels: {app: kindnet}}
  template:
    metadata: {labels: {app: kindnet}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: kindnet, image: registry.example/kindnet}]
"""
"""Where no other CNI runs, Cilium is not removed."""
PLACES = "namespaces,customresourcedefinitions"


@pytest.fixture(scope="module")
def stage(site: Site, deployed: Plane, cluster_admin: Admin) -> Iterator[Releases]:
    """Two workers for helm, of which one is killed now and then."""
    with equipped(site, deployed, cluster_admin, workers=("helm", "helm-2")):
        yield Releases(deployed)
        for name, namespace in NAMESPACES.items():
            program(deployed, "uninstall", name, f"--namespace={namespace}", "--ignore-not-found", "--no-hooks")


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., KwokFleet], deployed: Plane) -> Iterator[KwokFleet]:
    made = make_fleet("soak-helm", *NODES)
    deployed.kubectl("apply", "-f", "-", text=OTHER_NETWORK)
    yield made
    deployed.kubectl("delete", "-f", "-", text=OTHER_NETWORK)


@pytest.fixture(scope="module")
def pool(site: Site, fleet: KwokFleet) -> int:
    return site.pool(pool="soak-helm")


class ComponentsRequest:
    """Request of rollout number `number` of this seed: always something that no release has.

    `there`: what is installed now. Something is removed or installed in every rollout once all were there.
    """

    def __init__(self, number: int, there: Collection[str]) -> None:
        self.random = random.Random(f"{SEED}/{number}")
        self.components = sorted(self.random.sample(sorted(NAMESPACES), self.random.choice((1, 2, 2, 3))))
        absent = sorted(NAMESPACES.keys() - there)
        if absent and not set(absent) & set(self.components) and self.random.random() < 0.7:
            self.components = sorted({*self.components, self.random.choice(absent)})
        self.removes = {name for name in self.components if name in there and self.random.random() < 0.6}
        self.installs = set(self.components) - set(there)
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

    def __str__(self) -> str:
        done = [
            f"{name} {'removed' if name in self.removes else 'installed' if name in self.installs else 'changed'}"
            for name in self.components
        ]
        return ", ".join([*done, *(["reverted"] if self.reverts else [])])

    def wanted(self, name: str) -> dict[str, Any] | None:
        """Its values; None: it is to be gone."""
        return None if name in self.removes else self.values[name]

    @property
    def source(self) -> str:
        entries = {
            name: {"remove": True, "why": "The seed says so"} if name in self.removes else {"values": self.values[name]}
            for name in self.components
        }
        return yaml.safe_dump({"components": entries})


def places(stage: Releases) -> set[tuple[str, str]]:
    """(kind, name) of all namespaces and definitions."""
    raw = yaml.load(stage.plane.kubectl("get", PLACES, "-o", "json"), yaml.CSafeLoader)["items"]
    return {(item["kind"], item["metadata"]["name"]) for item in raw if not item["metadata"].get("deletionTimestamp")}


def moved(site: Site, plan: Mapping[str, Any]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the namespaces and definitions that the plan creates and deletes."""
    moved_names: dict[str, set[tuple[str, str]]] = {"created": set(), "deleted": set()}
    for part in site.operator.every(f"plans/{plan['id']}/components"):
        for difference in part["objects"]:
            if difference["kind"] in ("Namespace", "CustomResourceDefinition") and difference["change"] in moved_names:
                moved_names[difference["change"]].add((difference["kind"], difference["name"]))
    return moved_names["created"], moved_names["deleted"]


def settled(stage: Releases) -> None:
    """The queue that Volcano's controllers make is there where its kind is, and an approver counted it."""
    if stage.values("volcano") is not None:
        eventually(lambda: "default" in stage.plane.kubectl("get", "queues.scheduling.volcano.sh", "-o", "name"))


def run(site: Site, rollout: str, chaos: HelmChaos, *ends: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        current = eventually(lambda: site.rollout(rollout), seconds=60)
        if current["status"] in ends:
            return
        story = f"{chaos.done}\n{site.story(rollout)}"
        assert current["status"] not in (*ENDED, "stopped"), f"it {current['status']}\n{story}"
        assert time.monotonic() < deadline, f"no end after {SECONDS} s\n{story}"
        time.sleep(0.5)


def planned(site: Site, pool: int, request: ComponentsRequest) -> dict[str, Any]:
    """Plan as soon as Setpoint sees the cluster again, whose API server the previous rollout may have killed last."""
    revision = site.revision(request.settings, extra=request.source)

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
    if number > COUNT // 2:
        with_helm_4(site)
    site.await_observed(NODES)
    settled(stage)
    before, places_before = {name: stage.values(name) for name in NAMESPACES}, places(stage)
    request = ComponentsRequest(number, [name for name, values in before.items() if values is not None])
    after = before | {name: request.wanted(name) for name in request.components}
    plan = planned(site, pool, request)
    assert [f for f in plan["findings"] if f["severity"] == "block"] == []
    comes, goes = moved(site, plan)
    site.approve(plan)
    chaos = HelmChaos(site.setpoint, fleet, stage.plane, f"{SEED}/{number}", kills=request.kills)
    rollout = site.start(plan)
    chaos.start()
    try:
        run(site, rollout, chaos, "succeeded")
        assert {name: stage.values(name) for name in NAMESPACES} == after
        whole(stage, list(NAMESPACES))
        assert places(stage) == (places_before | comes) - goes
        if request.reverts:
            settled(stage)
            site.act(rollout, "revert")
            run(site, rollout, chaos, "reverted")
            assert {name: stage.values(name) for name in NAMESPACES} == before
    finally:
        chaos.stop()
        print(f"{request};", chaos.done, f"{chaos.met} helm programs met")
        if site.rollout(rollout)["status"] not in ENDED:
            site.give_up(rollout)
    whole(stage, list(NAMESPACES))
    if request.reverts:  # what an installation brought of namespaces and of crds/ stays: helm deletes neither
        left = places(stage) - places_before
        assert left <= comes
        assert places_before <= places(stage)
    judge = site.judge()
    judge.must_hold()
    assert judge.helm_writes
