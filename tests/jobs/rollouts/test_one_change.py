"""The way of one change: plan, approve, roll out, verify, revert."""

from __future__ import annotations

from compliance.models import Assignment, NodeExpectation, SettingState
from jobs.models import Slot
from jobs.rollouts import rollout_actions


def test_a_live_setting_reaches_every_node_and_is_read_back_from_the_kernel(world):
    before = {n: world.value(n) for n in ("n1", "n2", "n3")}

    rollout = world.run(world.started())

    assert rollout.status == "succeeded", rollout.waiting_for
    assert {world.value(n) for n in before} == {"10"}
    assert [s.state for s in SettingState.objects.all()] == ["compliant"] * 3
    assert {world.state(n).original for n in before} == set(before.values())
    assert Assignment.objects.get().revision == rollout.plan.revision
    assert NodeExpectation.objects.filter(revision=rollout.plan.revision).count() == 3


def test_a_live_change_takes_no_slot_and_cordons_nothing(world):
    world.run(world.started())

    assert not Slot.objects.exists()
    assert not [entry for entry in world.sim.audit if entry.resource == "nodes" and entry.verb in ("patch", "update")]


def test_a_revert_puts_the_recorded_originals_back(world):
    rollout = world.run(world.started())

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "reverted", rollout.waiting_for
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}
    assert not SettingState.objects.exists()
    assert not NodeExpectation.objects.exclude(revision=None).exists()


def test_a_revert_to_an_earlier_revision_brings_back_its_values(world):
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}))))
    later = world.run(world.started(world.plan(world.revision({"vm.swappiness": "10", "fs.aio-max-nr": "1048576"}))))
    assert later.status == "succeeded", later.waiting_for

    rollout_actions.revert(later, by=world.operator)
    world.run(later)

    assert later.status == "reverted", later.waiting_for
    assert world.value("n1") == "30"
    assert world.value("n1", "fs.aio-max-nr") == "65536"
    assert world.state("n1").original == "60"


def test_a_key_that_the_next_revision_drops_goes_back_to_its_original(world):
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "10", "fs.aio-max-nr": "1048576"}))))

    world.run(world.started(world.plan(world.revision({"fs.aio-max-nr": "1048576"}))))

    assert world.value("n1") == "60"
    assert not SettingState.objects.filter(key="vm.swappiness").exists()
