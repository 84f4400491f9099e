"""Rollouts after a restore of an older state: nothing is done twice, nothing by itself, each difference is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from clusters.models import Cluster
from config.doctor import fleets
from jobs.engine import component_runner
from jobs.models import Freeze, Rollout
from jobs.rollouts import freezes
from tests.jobs.pages import browser

pytestmark = pytest.mark.django_db(transaction=True)

REBOOT = {"vm.swappiness": "10", "cmdline.iommu": "pt"}
WRITES = ("create", "update", "patch", "delete")


def of_setpoint(world) -> int:
    """Return how many writes the cluster heard of, besides those of nodes and agents."""
    return sum(entry.verb in WRITES and entry.request is not None for entry in world.sim.audit.entries)


def boots(world) -> dict[str, str]:
    raws = world.fleet.list("nodes").items
    return {raw["metadata"]["name"]: raw["status"]["nodeInfo"]["bootID"] for raw in raws}


def restored(world, file: Path) -> None:
    call_command("restore", str(file), "--replace")
    world.cluster.refresh_from_db()
    world._seen.clear()  # the watch lists everything when it starts
    world.look()


@pytest.fixture
def behind(make_world, tmp_path: Path):
    """Return a world, a rollout that a backup has with one node restarting, and that ended since, and the backup."""
    world = make_world(nodes=2)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3", order="name"))
    world.until(rollout, "restarting", node="n1", seconds=3000, longest=30)
    Cluster.objects.update(credential_key="")  # which the simulated fleet has none of
    file = tmp_path / "backup.tgz"
    call_command("backup", str(file))
    world.run(rollout, seconds=9000, step=30)
    return world, rollout, file


def test_nothing_is_done_before_an_administrator_confirms_and_nothing_twice_afterwards(behind) -> None:
    world, rollout, file = behind
    booted = boots(world)
    restored(world, file)
    rollout.refresh_from_db()
    assert (rollout.status, rollout.steps.get(node_name="n2").status) == ("running", "queued"), "or this tries nothing"

    writes = of_setpoint(world)
    for _ in range(5):
        world.slice(rollout)
        world.tick(300)
    assert of_setpoint(world) == writes
    rollout.refresh_from_db()
    assert rollout.status == "running"
    assert [f.state for f in fleets.rollouts()][:1] == ["warning"]
    assert Freeze.RESTORED in browser(world.operator).get("/").content.decode()

    named = [finding.text for finding in fleets.rollouts() if finding.state == "problem"]
    assert len(named) == 1
    assert " n2 " in named[0]
    before = len(world.sim.audit.entries)
    freezes.lift(Freeze.after_restore().get(), by=world.admin)
    world.run(rollout, seconds=9000, step=30)
    assert boots(world) == booted
    assert dict(rollout.steps.values_list("node_name", "status")) == {
        "n1": "succeeded",
        "n2": "held",
    }
    of_n2 = [entry for entry in world.sim.audit.entries[before:] if entry.name == "n2" and entry.request is not None]
    assert not of_n2, "neither cordoned nor drained nor written again"


def test_what_a_later_rollout_did_is_named_and_left_alone(behind) -> None:
    world, rollout, file = behind
    later = world.started(world.plan(world.revision({"vm.swappiness": "5"}), canary=0, batch="3"))
    world.run(later, seconds=9000, step=30)
    restored(world, file)
    assert not Rollout.objects.filter(pk=later.pk).exists()
    named = [finding.text for finding in fleets.rollouts() if finding.state == "problem"]
    assert [name for name in ("n1", "n2") if any(f" {name} " in text for text in named)] == ["n1", "n2"]

    freezes.lift(Freeze.after_restore().get(), by=world.admin)
    for _ in range(5):
        world.slice(rollout)
        world.tick(300)
    assert {world.value(name) for name in ("n1", "n2")} == {"5"}
    rollout.refresh_from_db()
    assert rollout.status != "succeeded", "nothing of it is lost without a word"


def test_a_freeze_of_a_person_holds_no_step_in_progress(make_world) -> None:
    """A restore's freeze does; a person's lets what has begun end, also with a reason that begins alike."""
    world = make_world()
    rollout = world.started(world.plan(world.revision(REBOOT)))
    freezes.freeze(cluster=None, reason=f"{Freeze.RESTORED} of yesterday", by=world.admin)
    assert rollout in Rollout.objects.due()
    Freeze.objects.create(reason=f"{Freeze.RESTORED} of yesterday")
    assert rollout not in Rollout.objects.due()
    assert component_runner.due_steps(rollout.pk) == []
