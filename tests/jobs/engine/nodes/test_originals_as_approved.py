"""Reverts restore the value that was approved, and nothing that was changed by hand since (laws 2, 6, 7 and 8)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from clusters.fleet import FleetUnavailable
from compliance.models import SettingState
from contract import keys
from contract.nodetuning import SettingStatus
from jobs.models import Rollout
from jobs.rollouts import rollout_actions
from simfleet import SimFleet
from simfleet.machines.machine import DiskJournal
from tests.jobs.conftest import World
from tests.jobs.moments import reach

KEY, MODULE = "vm.swappiness", "module.ib_umad"


def forge_journal(world: World, original: str | None, node: str = "n1") -> None:
    """Forge the journal of an older rollout, of which this database knows nothing."""
    disk = world.sim.nodes.machine(node).kernel.disk
    body = json.loads(disk[DiskJournal.PATH].partition("\n")[2])
    body["entries"][KEY] |= {"original": original, "places": {"/proc/sys/vm/swappiness": original}}
    text = json.dumps(body, separators=(",", ":"))
    disk[DiskJournal.PATH] = f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}\n"


def done(world: World) -> Rollout:
    rollout = world.run(world.started(world.plan(canary=0)))
    assert (rollout.status, world.value("n1")) == ("succeeded", "10")
    return rollout


def test_a_journal_of_an_older_rollout_holds_the_step_with_both_values(make_world):
    world = make_world(nodes=1)
    rollout = done(world)
    forge_journal(world, "30")
    world.sim.agents.restart("n1")

    rollout_actions.revert(rollout, by=world.operator)
    step = world.until(rollout, "held")

    assert world.value("n1") == "10", "nothing is written while nobody knows which is right"
    assert "60" in step.error
    assert "30" in step.error


def test_without_a_journal_the_original_of_the_plan_goes_back(make_world):
    world = make_world(nodes=1)
    rollout = done(world)
    del world.sim.nodes.machine("n1").kernel.disk[DiskJournal.PATH]
    world.sim.agents.restart("n1")

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert (rollout.status, world.value("n1")) == ("reverted", "60")


def test_a_value_that_is_called_restored_and_is_another_one_is_not_green(make_world, monkeypatch):
    """An agent of the version before believed its journal over what was approved."""
    world = make_world(nodes=1)
    rollout = done(world)
    forge_journal(world, "30")
    monkeypatch.setattr("agent.restore._disagree", lambda node, restore: "")
    world.sim.agents.restart("n1")

    rollout_actions.revert(rollout, by=world.operator)
    step = world.until(rollout, "held")

    assert world.value("n1") == "30"
    assert "30" in step.error
    assert "60" in step.error
    assert "Nothing was written" not in step.error


def test_a_revert_waits_for_a_module_that_is_in_use_and_says_so(make_world):
    """The step's sentence named two values before, and nothing of a boot."""
    world = make_world(nodes=1)
    rollout = world.run(world.started(world.plan(world.revision({MODULE: "loaded"}), canary=0)))
    assert rollout.status == "succeeded"
    kernel = world.sim.kernel("n1")
    kernel._live["/sys/module/ib_umad/refcnt"] = "2"
    rollout_actions.revert(rollout, by=world.operator)
    world.until(rollout, "verifying")
    world.run(rollout, seconds=30)
    assert "in use (2): it stays until the next boot" in rollout.steps.get().waiting_for
    kernel._live["/sys/module/ib_umad/refcnt"] = "0"
    assert not kernel.unload("ib_umad")
    assert world.run(rollout).status == "reverted"


def test_a_plan_that_drops_a_key_puts_the_approved_original_back_or_nothing(make_world):
    """Another original was put into the database between approval and write, by hand or by a restored backup."""
    world = make_world(nodes=1)
    done(world)
    plan = world.approved(world.plan(world.revision({"vm.max_map_count": ">= 262144"}), canary=0))
    SettingState.objects.filter(key=KEY).update(original="5")
    rollout = world.run(rollout_actions.start(plan, by=world.operator))

    assert (rollout.status, world.value("n1")) == ("succeeded", "60")


@pytest.mark.parametrize(
    ("key", "original", "effective", "is_restored"),
    [
        (KEY, "60", "60", True),
        (KEY, "60", "060", True),
        (KEY, "60", "30", False),
        (KEY, "60", None, True),
        ("cmdline.iommu", "pt", None, False),
        ("cmdline.iommu", None, "pt", False),
        ("cmdline.iommu", None, None, True),
        ("module.ib_umad", None, "loaded", False),
        ("block.nvme.read_ahead_kb", "mixed:128,4096", "128", True),
        ("block.nvme.read_ahead_kb", "128", "mixed:128,256", True),
        ("block.nvme.read_ahead_kb", "128", "256", False),
        ("block.nvme.read_ahead_kb", "mixed:128,4096", "mixed:1,2", False),
    ],
)
def test_what_counts_as_restored_is_the_kernels_answer(key, original, effective, is_restored):
    assert keys.is_restored(key, original, effective) is is_restored


def expects(world: World) -> list[Any]:
    spec = world.fleet.tuning("n1")["spec"]
    return [(item["key"], item.get("expect")) for item in (*spec["settings"], *spec["restore"])]


def test_a_value_edited_between_two_tries_of_a_revert_is_held_and_not_overwritten(make_world, monkeypatch):
    """The answer to the first try is lost, though its agent held all of it because of another key; before the second
    one that key is as it was again, and a person sets this one by hand."""
    world = make_world(nodes=1)
    wanted = {KEY: "10", "vm.max_map_count": "262144"}
    rollout = world.run(world.started(world.plan(world.revision(wanted), canary=0)))
    rollout_actions.revert(rollout, by=world.operator)
    reach(world, rollout, "applying")
    kernel, real, tries = world.sim.kernel("n1"), SimFleet.tune, []

    def tune(self: SimFleet, node: str, spec: Any, **more: Any) -> Any:
        tries.append({r.key: r.expect for r in spec.restore})
        if len(tries) > 1:
            return real(self, node, spec, **more)
        kernel.write("/proc/sys/vm/swappiness", "77")
        real(self, node, spec, **more)
        world.tick(10)
        kernel.write("/proc/sys/vm/swappiness", "10")
        kernel.write("/proc/sys/vm/max_map_count", "300000")
        raise FleetUnavailable("no answer")

    monkeypatch.setattr(SimFleet, "tune", tune)
    step = world.until(rollout, "held")

    assert tries[:2] == [wanted, wanted]
    assert world.value("n1", "vm.max_map_count") == "300000"
    assert "moved" in step.error


def test_what_a_revert_expects_is_stored_before_it_is_asked(make_world, monkeypatch):
    world = make_world(nodes=1)
    rollout = done(world)
    rollout_actions.revert(rollout, by=world.operator)
    real, stored = SimFleet.tune, []

    def tune(self: SimFleet, node: str, spec: Any, **more: Any) -> Any:
        stored.append((rollout.steps.get().expects, {r.key: r.expect for r in spec.restore}))
        return real(self, node, spec, **more)

    monkeypatch.setattr(SimFleet, "tune", tune)
    world.run(rollout)
    assert stored
    assert all(kept == sent for kept, sent in stored)


def test_a_key_that_was_changed_before_a_forward_step_wrote_it_is_not_taken_by_its_revert(make_world):
    """Held because it moved, so it is not this rollout's; putting the rollout back does not overwrite it either."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(canary=0))
    reach(world, rollout, "applying")
    world.sim.kernel("n1").write("/proc/sys/vm/swappiness", "77")
    world.until(rollout, "held")
    assert (world.fleet.tuning("n1")["status"]["settings"][0]["state"]) == SettingStatus.MOVED
    rollout_actions.pause(rollout, by=world.operator)

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert world.value("n1") == "77"
