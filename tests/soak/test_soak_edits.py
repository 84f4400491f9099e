"""Values edited by hand while a rollout runs: none of them ends as `succeeded` unreported."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.full.harness.client import eventually
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import ENDED, Site
from tests.soak.rows import differences
from tests.soak.test_soak import values

pytestmark = [pytest.mark.full, pytest.mark.long]
SEED = os.environ.get("SEED", "1")
COUNT = max(2, int(os.environ.get("COUNT", "8")) // 4)
NODES = tuple(f"edit-{number}" for number in range(1, 5))
KEY, PATH = "vm.swappiness", "/proc/sys/vm/swappiness"
EDITED = "93"


@pytest.fixture(scope="module")
def fleet(site: Site, make_fleet: Callable[..., KwokFleet]) -> KwokFleet:
    return make_fleet("edit", *NODES)


def edit(fleet: KwokFleet, node: str) -> None:
    """Edit a value as a user on the machine does, unseen by the agent. Agents are killed meanwhile, at any point."""
    fleet.kill()
    file = fleet.folder / "state" / f"{node}.json"
    state = json.loads(file.read_text())
    state["changed"][PATH] = EDITED
    file.write_text(json.dumps(state))
    fleet.start()


def noticed(site: Site, rollout: str, node: str) -> str:
    """Return how the edit was noticed; empty if it was not yet."""
    step = site.steps(rollout)[node]
    (value,) = values(site, [node], KEY)
    if step["status"] in ("held", "failed", "skipped"):
        return f"{step['status']}: {step['error']}"
    if step["status"] == "succeeded" and value == EDITED:
        rows = site.operator.every("compliance/settings", key=KEY, rollout=rollout)
        return next((s["state"] for s in rows if s["node_name"] == node and s["state"] != "compliant"), "")
    return ""


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_soak_a_value_edited_by_hand_is_noticed_whenever_that_was(site: Site, fleet: KwokFleet, number: int) -> None:
    chance = random.Random(f"{SEED}/edit/{number}")
    site.await_observed(NODES)
    wish: dict[str, Any] = {KEY: str(20 + number)}
    plan = eventually(lambda: site.plan(site.pool(pool="edit"), site.revision(wish), batch="1", canary=0))
    site.approve(plan)
    before = dict(zip(NODES, values(site, NODES, KEY), strict=True))
    rollout = site.start(plan)
    try:
        # How far it is when the edit comes: nothing begun, some nodes done, or all.
        done = chance.randrange(len(NODES) + 1)
        eventually(lambda: sum(s["status"] == "succeeded" for s in site.steps(rollout).values()) >= done, seconds=120)
        node = chance.choice(NODES)
        edit(fleet, node)
        how = eventually(lambda: noticed(site, rollout, node), lambda: site.story(rollout), seconds=120)
        assert values(site, [node], KEY) == [EDITED], f"{before[node]} edited, and written over; {how}"
    finally:
        if site.rollout(rollout)["status"] not in ENDED:
            site.give_up(rollout)
    eventually(lambda: not differences(site), lambda: "\n".join(differences(site)), seconds=60)
