"""Faults of a node in progress: deleted, replaced, rebooted, not Ready, and pods that may not be evicted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract import names
from tests.controlplane.admin import EVICTED, Admin
from tests.full.harness.client import eventually
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import ENDED, Site

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("judged")]
_serial = itertools.count(1)
DRAINS = "taints:\n- key: example.com/maintenance\n  value: {value}\n  effect: NoExecute\n"
"""Of a pod that such a taint evicts: a node that has one is drained first."""


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., KwokFleet]) -> KwokFleet:
    return make_fleet("faults")


class Scene:
    """Two nodes, `first` and `second`, and a rollout over them that stops where the test wants it."""

    def __init__(self, site: Site, fleet: KwokFleet, admin: Admin) -> None:
        number = next(_serial)
        self.site, self.fleet, self.admin = site, fleet, admin
        self.first, self.second = f"fault-{number}-a", f"fault-{number}-b"
        self.label = f"scene-{number}"
        fleet.add(self.first, self.second, labels={"pool": self.label})
        site.await_observed((self.first, self.second))
        self.pk = ""
        self.node = self.first
        """The one that the fault happens to."""
        self._tidy: list[Callable[[], None]] = []

    def start(self, settings: dict[str, str], *, extra: str = "", **strategy: Any) -> None:
        """One node after the other, in the order of their names; a failure does not stop the other."""
        how = {"canary": 1, "batch": "1", "order": "name", "max_failures": 1, **strategy}
        plan = self.site.plan(self.site.pool(pool=self.label), self.site.revision(settings, extra=extra), **how)
        self.site.approve(plan)
        self.pk = self.site.start(plan)

    def freeze_agents(self) -> None:
        self.fleet.freeze()
        self._tidy.append(self.fleet.thaw)

    def thaw_agents(self) -> None:
        self.fleet.thaw()

    def guard_pod(self) -> None:
        """A pod on the first node that its PodDisruptionBudget does not let go."""
        marks = {"guarded": self.label}
        self.admin.pod(f"guarded-{self.label}", node=self.first, labels=marks, spec=EVICTED)
        self.admin.budget(f"guard-{self.label}", selector=marks, min_available=1)
        self._tidy.append(self.let_pod_go)

    def let_pod_go(self) -> None:
        self.admin.delete("poddisruptionbudgets", f"guard-{self.label}")

    # ── stages ────────────────────────────────────────────────────────────────────────────────────────────────────
    def stand_in(self, stage: str) -> None:
        """Start, and hold the node in that stage until `go_on`."""
        getattr(self, f"_stand_in_{stage}")()

    def go_on(self) -> None:
        while self._tidy:
            self._tidy.pop()()

    def _stand_in_queued(self) -> None:
        self.freeze_agents()
        self.start({"vm.swappiness": "12"})
        self.node = self.second
        self.site.until_step(self.pk, self.first, "verifying")
        self.site.until_step(self.pk, self.second, "queued")

    def _stand_in_draining(self) -> None:
        self.guard_pod()
        self.start({}, extra=DRAINS.format(value=self.label), delete_unmanaged_pods=True)
        self.site.until_step(self.pk, self.first, "draining", says=f"default/guard-{self.label}")

    def _stand_in_restarting(self) -> None:
        self.freeze_agents()
        self.start({"hugepages-2Mi": "32"})
        self.site.until_step(self.pk, self.first, "restarting", says="agent")

    def _stand_in_verifying(self) -> None:
        self.admin.pod(f"evicted-{self.label}", node=self.first, spec=EVICTED)
        self.freeze_agents()
        self.start({"vm.swappiness": "13"}, extra=DRAINS.format(value=self.label), delete_unmanaged_pods=True)
        self.site.until_step(self.pk, self.first, "verifying", says="agent")

    def _stand_in_soaking(self) -> None:
        self.start({"hugepages-2Mi": "16"}, soak_seconds=8)
        self.site.until_step(self.pk, self.first, "soaking")

    # ── what there is ─────────────────────────────────────────────────────────────────────────────────────────────
    def end(self, *statuses: str) -> dict[str, dict[str, Any]]:
        self.go_on()
        self.site.until(self.pk, *statuses)
        return self.site.steps(self.pk)

    def is_cordoned(self, node: str) -> bool:
        return bool(self.admin.get("nodes", node)["spec"].get("unschedulable"))

    def close(self) -> None:
        self.go_on()
        if self.pk and self.site.rollout(self.pk)["status"] not in ENDED:
            self.site.give_up(self.pk)
        for kind in ("guarded", "evicted"):
            self.admin.delete("pods", f"{kind}-{self.label}", "default", grace=0)
        self.fleet.remove(self.first, self.second)


@pytest.fixture
def scene(site: Site, fleet: KwokFleet, cluster_admin: Admin) -> Iterator[Scene]:
    made = Scene(site, fleet, cluster_admin)
    try:
        yield made
    finally:
        made.close()


STAGES = ("queued", "draining", "restarting", "verifying", "soaking")


@pytest.mark.parametrize("stage", STAGES)
def test_a_deleted_node_ends_its_step_and_leaves_its_place_to_the_next(scene: Scene, stage: str):
    scene.stand_in(stage)

    scene.admin.delete("nodes", scene.node)
    scene.go_on() if stage == "queued" else None
    scene.site.until_step(scene.pk, scene.node, "failed", says="deleted")

    steps = scene.end("failed")
    other = scene.second if scene.node == scene.first else scene.first
    assert steps[other]["status"] == "succeeded", "the budget of one was free again"
    assert scene.admin.find("nodes", scene.node) is None, "Setpoint brings no node back"


@pytest.mark.parametrize("stage", STAGES)
def test_a_node_replaced_under_its_name_is_another_node(scene: Scene, stage: str):
    scene.stand_in(stage)

    scene.go_on() if stage == "draining" else None
    scene.fleet.replace(scene.node)
    scene.go_on() if stage == "queued" else None

    scene.site.until_step(scene.pk, scene.node, "failed", says="replaced")
    scene.end("failed")
    new = scene.admin.get("nodes", scene.node)
    assert not new["spec"].get("unschedulable")
    assert names.CORDONED_BY not in new["metadata"]["annotations"]
    tuning = scene.admin.wait("nodetunings", scene.node, until=lambda t: t["spec"]["nodeUID"] == new["metadata"]["uid"])
    assert tuning["spec"]["mode"] == "observe", "nobody approved anything for this one"


@pytest.mark.parametrize("stage", ["draining", "restarting", "verifying"])
def test_a_reboot_that_setpoint_did_not_grant_ends_the_step_and_the_node_stays_cordoned(scene: Scene, stage: str):
    scene.stand_in(stage)

    scene.admin.set_boot_id(scene.node, f"another-boot-{scene.label}")
    scene.go_on()

    step = scene.site.until_step(scene.pk, scene.node, "failed", says="rebooted meanwhile")
    assert scene.is_cordoned(scene.node) == step["is_disrupted"]
    scene.site.act(scene.pk, "skip", step=step["id"])
    scene.end("succeeded")
    assert not scene.is_cordoned(scene.node)


@pytest.mark.long
def test_a_reboot_before_its_turn_is_no_matter(scene: Scene):
    scene.stand_in("queued")

    scene.admin.set_boot_id(scene.node, f"another-boot-{scene.label}")

    assert scene.end("succeeded")[scene.node]["status"] == "succeeded"


@pytest.mark.parametrize("stage", ["queued", "draining", "restarting", "verifying"])
def test_a_node_that_is_not_ready_is_waited_for_and_nothing_is_lost(scene: Scene, stage: str):
    scene.stand_in(stage)

    scene.admin.set_ready(scene.node, ready=False)
    scene.go_on()
    step = scene.site.until_step(scene.pk, scene.node, "queued", "draining", "restarting", "returning", says="Ready")
    assert scene.node in step["waiting_for"] or "Ready" in step["waiting_for"]
    scene.admin.set_ready(scene.node, ready=True)

    assert scene.end("succeeded")[scene.node]["status"] == "succeeded"
    assert not scene.is_cordoned(scene.node)


@pytest.mark.long
def test_a_node_that_is_not_ready_while_soaking_has_failed(scene: Scene):
    scene.stand_in("soaking")

    scene.admin.set_ready(scene.node, ready=False)

    step = scene.site.until_step(scene.pk, scene.node, "failed", says="not Ready while soaking")
    assert step["failed_in"] == "soaking"


def test_a_drain_waits_for_the_disruption_budget_that_the_plan_named_and_goes_on_when_it_allows(scene: Scene):
    scene.guard_pod()
    guard = f"default/guard-{scene.label}"
    pool = scene.site.pool(pool=scene.label)
    revision = scene.site.revision({}, extra=DRAINS.format(value=scene.label))
    refused = scene.site.plan(pool, revision)
    assert {f["code"]: f["severity"] for f in refused["findings"]}["bare-pods"] == "block"

    plan = scene.site.plan(pool, revision, delete_unmanaged_pods=True, canary=1, batch="1", order="name")
    findings = {f["code"]: f for f in plan["findings"]}
    assert guard in findings["pdb"]["title"]
    assert findings["pdb"]["nodes"] == [scene.first]
    assert plan["summary"]["pods_evicted"] == 1

    scene.site.approve(plan)
    scene.pk = scene.site.start(plan)
    step = scene.site.until_step(scene.pk, scene.first, "draining", says=guard)
    assert step["is_disrupted"] is False, "nothing was evicted yet"
    assert scene.is_cordoned(scene.first)
    assert scene.admin.get("pods", f"guarded-{scene.label}", "default")["status"]["phase"] == "Running"
    assert not scene.is_cordoned(scene.second), "the budget is one"

    scene.let_pod_go()
    scene.end("succeeded")
    assert scene.admin.find("pods", f"guarded-{scene.label}", "default") is None
    taints = scene.admin.get("nodes", scene.first)["spec"]["taints"]
    assert [t["effect"] for t in taints if t["key"] == "example.com/maintenance"] == ["NoExecute"]


@pytest.mark.long
def test_an_aborted_drain_that_evicted_nothing_gives_the_node_back(scene: Scene):
    scene.stand_in("draining")
    scene.site.act(scene.pk, "abort")
    step = scene.site.steps(scene.pk)[scene.second]
    eventually(lambda: scene.site.steps(scene.pk)[scene.second]["status"] == "skipped", lambda: step)

    scene.let_pod_go()

    scene.site.until(scene.pk, "cancelled")
    assert not scene.is_cordoned(scene.first)


def test_a_foreign_uncordon_is_put_back_once_and_then_the_step_is_held(scene: Scene):
    scene.stand_in("restarting")
    free = {"spec": {"unschedulable": False}}

    scene.admin.patch("nodes", scene.node, free)
    eventually(lambda: scene.is_cordoned(scene.node), lambda: scene.site.story(scene.pk))
    scene.admin.patch("nodes", scene.node, free)

    step = scene.site.until_step(scene.pk, scene.node, "held", says="uncordoned twice")
    assert not scene.is_cordoned(scene.node)
    scene.go_on()
    scene.site.act(scene.pk, "skip", step=step["id"])
    scene.end("succeeded")


@pytest.mark.long
def test_a_node_that_somebody_cordoned_is_left_out_and_stays_cordoned(scene: Scene):
    scene.admin.patch("nodes", scene.second, {"spec": {"unschedulable": True}})
    eventually(lambda: scene.site.node(scene.second)["is_cordoned"])

    scene.start({"vm.swappiness": "14"})

    steps = scene.end("succeeded")
    assert list(steps) == [scene.first]
    assert scene.is_cordoned(scene.second)


def test_a_person_who_wants_a_node_kept_cordoned_is_obeyed(scene: Scene):
    scene.stand_in("restarting")
    scene.admin.patch("nodes", scene.node, {"metadata": {"annotations": {names.KEEP_CORDONED: "looking at a fan"}}})

    scene.go_on()
    scene.site.until_step(scene.pk, scene.node, "succeeded")

    assert scene.is_cordoned(scene.node)
    # Off again, for the other node's turn and for the judge.
    scene.admin.patch("nodes", scene.node, {"spec": {"unschedulable": None}})
    scene.end("succeeded")
