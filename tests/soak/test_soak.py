"""Rollouts that a seed decides, while worker, watch and agents are killed at moments that it decides, too.

COUNT rollouts (default 8) from SEED (default 1): `make soak` runs 100. Each must end as if nothing had been killed, and
the API server's audit log must show that every law held meanwhile, and every row be as its object is.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from contract.nodetuning import Status
from tests.full.harness.chaos import Chaos
from tests.full.harness.client import eventually
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import ENDED, Site
from tests.soak.rows import differences

pytestmark = [pytest.mark.full, pytest.mark.long]
SEED = os.environ.get("SEED", "1")
COUNT = int(os.environ.get("COUNT", "8"))
NODES = tuple(f"soak-{number}" for number in range(1, 7))
BUDGET = 2
SECONDS = 240.0
"""For one rollout: about 15 s when no process is killed."""
TAINT = "example.com/soak"
NEW_GRANT = "it needs a new grant"
"""An agent killed between journalling a restart and its end must not repeat it, and says so; a person retries."""


@pytest.fixture(scope="module")
def fleet(site: Site, make_fleet: Callable[..., KwokFleet]) -> KwokFleet:
    made = make_fleet("soak", *NODES)
    site.setpoint.start("worker-2")
    site.set_budget(BUDGET)
    return made


class RolloutRequest:
    """Request of rollout number `number` of this seed: always something that every node lacks."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(f"{SEED}/{number}")
        self.kind = self.random.choice(("live", "live", "kubelet", "kubelet", "drain", "reboot"))
        self.settings: dict[str, str] = {"vm.swappiness": str(10 + number % 80), "vm.max_map_count": ">= 262144"}
        self.extra = ""
        if self.kind == "kubelet":
            self.settings["hugepages-2Mi"] = str(64 + number)
        if self.kind == "reboot":
            self.settings["cmdline.iommu"] = ("pt", "on")[number % 2]
        if self.kind == "drain":
            self.extra = f"taints:\n- key: {TAINT}\n  value: v{number}\n  effect: NoExecute\n"
        self.strategy: dict[str, Any] = {
            "canary": self.random.randint(0, 2),
            "batch": self.random.choice(("1", "2", "50%", "100%")),
            "budget": self.random.choice((0, 1)),
            "max_in_flight": self.random.choice((2, 300)),
            "delete_unmanaged_pods": True,
        }
        self.reverts = self.random.random() < 0.3
        self.kills = self.random.randint(2, 6)


def tolerations(number: int) -> list[dict[str, str]]:
    """Return tolerations of the taints that rollouts before this one have left."""
    return [{"key": TAINT, "operator": "Equal", "value": f"v{earlier}"} for earlier in range(1, number)]


def values(site: Site, nodes: Sequence[str], key: str) -> list[str | None]:
    """Return values as the agents report them, in the API server and not in Setpoint's rows."""
    raws = [site.cluster_admin.get("nodetunings", node) for node in nodes]
    return [Status.from_json(raw.get("status") or {}).observed.get(key) for raw in raws]


def run(site: Site, rollout: str, chaos: Chaos, *ends: str) -> None:
    """Run a rollout until it ends, retrying what only an operator may retry."""
    deadline = time.monotonic() + SECONDS
    while True:
        current = eventually(lambda: site.rollout(rollout), seconds=60)
        if current["status"] in ends:
            return
        steps = site.steps(rollout).values()
        if current["status"] == "stopped" and not any(
            s["status"] not in ("queued", "succeeded", "failed") for s in steps
        ):
            failed = [s for s in steps if s["status"] == "failed"]
            assert all(NEW_GRANT in s["error"] for s in failed), f"{chaos.done}\n{site.story(rollout)}"
            site.act(rollout, "retry-failed")
        elif current["status"] in ("failed", "succeeded", "reverted", "cancelled"):
            raise AssertionError(f"it {current['status']}\n{chaos.done}\n{site.story(rollout)}")
        assert time.monotonic() < deadline, f"no end after {SECONDS} s\n{chaos.done}\n{site.story(rollout)}"
        time.sleep(0.5)


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_soak_a_rollout_ends_well_whoever_is_killed(site: Site, fleet: KwokFleet, number: int):
    request = RolloutRequest(number)
    before = values(site, NODES, "vm.swappiness")
    pods = [f"soak-{number}-{n}" for n in range(2)] if request.kind == "drain" else []
    for pod in pods:
        # This rollout's taint evicts exactly these, so their nodes are drained first; an earlier one's may be there.
        site.cluster_admin.pod(pod, node=request.random.choice(NODES), spec={"tolerations": tolerations(number)})
    site.await_observed(NODES)
    plan = eventually(
        lambda: site.plan(
            site.pool(pool="soak"), site.revision(request.settings, extra=request.extra), **request.strategy
        )
    )
    assert len(site.operator.every(f"plans/{plan['id']}/nodes", ordering="name")) == len(NODES)
    assert plan["summary"]["nodes"] == len(NODES), plan["findings"]
    site.approve(plan)

    chaos = Chaos(site.setpoint, fleet, f"{SEED}/{number}", kills=request.kills)
    rollout = site.start(plan)
    chaos.start()
    try:
        run(site, rollout, chaos, "succeeded")
        assert values(site, NODES, "vm.swappiness") == [request.settings["vm.swappiness"]] * len(NODES)
        if request.reverts:
            site.act(rollout, "revert")
            run(site, rollout, chaos, "reverted")
            assert values(site, NODES, "vm.swappiness") == before
    finally:
        chaos.stop()
        if site.rollout(rollout)["status"] not in ENDED:
            site.give_up(rollout)
    assert not any(site.cluster_admin.get("nodes", name)["spec"].get("unschedulable") for name in NODES)
    assert [site.cluster_admin.find("pods", pod, "default") for pod in pods] == [None] * len(pods)
    eventually(lambda: not differences(site), lambda: "\n".join(differences(site)), seconds=60)
    judge = site.judge()
    judge.must_hold()
    assert judge.peak <= BUDGET
