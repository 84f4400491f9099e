"""Law 5 under attack: cordons of other hands, and nodes that a person wants kept cordoned."""

from __future__ import annotations

from contract import names
from jobs.models import Slot, Step
from jobs.rollouts import rollout_actions
from tests.jobs.engine.adversary.test_adversary_steps import annotations_of, is_cordoned, stuck_before_a_pdb

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}
BOB = "bob@example.org"


# ── law 5: cordons of other hands ─────────────────────────────────────────────────────────────────────────────────────


def test_a_cordon_set_between_our_look_and_our_write_stays_theirs(make_world, monkeypatch):
    world = make_world(nodes=1)
    real, cordon = world.fleet.node, world.fleet.cordon

    def raced(node, *args, **kwargs):
        monkeypatch.setattr(world.fleet, "cordon", cordon)
        world.sim.nodes.cordon(node, by=BOB)
        return cordon(node, *args, **kwargs)

    monkeypatch.setattr(world.fleet, "cordon", raced)
    monkeypatch.setattr(world.fleet, "node", real)
    rollout = world.run(world.started(world.plan(world.revision(REBOOT), canary=0)), seconds=2000, step=10)

    assert rollout.status == "succeeded"
    assert is_cordoned(world), "the person's cordon was released by Setpoint"
    assert names.CORDONED_BY not in annotations_of(world)


def test_a_node_kept_cordoned_is_handed_over_with_none_of_our_marks(make_world):
    """Else the mark, and the wish, still stand when the person has long released the node."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    world.until(rollout, "restarting")
    world.sim.nodes.keep_cordoned("n1")
    world.run(rollout, seconds=3000, step=10)

    assert is_cordoned(world)
    assert names.CORDONED_BY not in annotations_of(world)
    assert names.KEEP_CORDONED not in annotations_of(world)

    # The person's now: putting the rollout back leaves it cordoned.
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=3000, step=10)
    assert rollout.status == "reverted", rollout.waiting_for
    assert is_cordoned(world)


def test_keep_cordoned_counts_for_a_node_that_is_given_back_early(make_world):
    world = make_world(nodes=1)
    world.sim.nodes.machine("n1").dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=0, reboot_deadline_seconds=60)
    rollout = world.run(world.started(plan), seconds=1000, step=10)
    world.sim.nodes.keep_cordoned("n1")
    world.look()
    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    world.run(rollout, seconds=100)

    assert rollout.steps.get().status == "skipped"
    assert is_cordoned(world)


def test_our_mark_does_not_stay_on_a_node_that_a_person_uncordoned(make_world):
    """A mark left behind would make the person's next cordon look like ours, and it would be released."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    step = world.until(rollout, "restarting")
    Step.objects.filter(pk=step.pk).update(status="returning")
    world.sim.nodes.cordon("n1", by=BOB, is_cordoned=False)
    world.look()
    world.run(rollout, seconds=600, step=10)

    assert not is_cordoned(world)
    assert names.CORDONED_BY not in annotations_of(world)


def test_after_two_foreign_uncordons_the_persons_next_cordon_is_not_ours(make_world):
    world = make_world(nodes=1)
    rollout = stuck_before_a_pdb(world)
    world.until(rollout, "draining")
    for _ in range(2):
        world.sim.nodes.cordon("n1", by=BOB, is_cordoned=False)
        world.tick(5)
        world.slice(rollout)
        world.look()
    world.until(rollout, "held", seconds=10)

    world.sim.nodes.cordon("n1", by=BOB)
    world.look()
    assert names.CORDONED_BY not in annotations_of(world)
    rollout_actions.skip(rollout, rollout.steps.get(), by=world.operator)
    world.run(rollout, seconds=60)
    assert is_cordoned(world)


def test_a_cordon_that_another_of_our_rollouts_left_is_taken_over_with_its_slot(make_world):
    """The later rollout repairs the node in its own place; otherwise that cordon would never be released."""
    world = make_world(nodes=2)
    machine = world.sim.nodes.machine("n1")
    machine.dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=1, batch="1", order="name", reboot_deadline_seconds=60)
    first = world.run(world.started(plan), seconds=2000, step=10)
    rollout_actions.abort(first, by=world.operator)
    world.run(first)
    machine.dies_at_reboot = False
    machine.power_on()
    world.tick(300)

    later = world.started(world.plan(world.revision(HUGE), canary=0, batch="2", include_unavailable=True))
    world.run(later, seconds=3000, step=10)

    assert later.status == "succeeded", later.waiting_for
    assert not is_cordoned(world)
    assert names.CORDONED_BY not in annotations_of(world)
    assert not Slot.objects.exists()


# ── law 5: "keep cordoned" ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wish_to_keep_the_node_that_comes_with_our_last_look_is_heard(make_world, monkeypatch):
    """The annotation is set after the engine read the node, and before it uncordons."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    real = world.fleet.uncordon

    def raced(node, *args):
        world.sim.nodes.keep_cordoned(node)
        return real(node, *args)

    monkeypatch.setattr(world.fleet, "uncordon", raced)
    world.run(rollout, seconds=3000, step=10)

    assert rollout.status == "succeeded"
    assert is_cordoned(world)
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(annotations_of(world))
    assert any("Kept cordoned" in text for text in rollout.events.values_list("text", flat=True))


def test_a_wish_whose_maker_uncordoned_the_node_does_not_outlive_the_rollout(make_world):
    """The wish would keep the node cordoned after some later rollout, when it is long forgotten."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    step = world.until(rollout, "restarting")
    world.sim.nodes.keep_cordoned("n1")
    Step.objects.filter(pk=step.pk).update(status="returning")
    world.sim.nodes.cordon("n1", by=BOB, is_cordoned=False)
    world.look()
    world.run(rollout, seconds=600, step=10)

    assert not is_cordoned(world)
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(annotations_of(world))


def test_a_wish_on_a_node_that_others_cordoned_stays_theirs(make_world):
    world = make_world(nodes=1)
    world.sim.nodes.cordon("n1", by=BOB)
    world.sim.nodes.keep_cordoned("n1", by=BOB)
    world.look()
    plan = world.plan(world.revision(HUGE), canary=0, include_unavailable=True)
    rollout = world.run(world.started(plan), seconds=600, step=5)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert is_cordoned(world)
    assert names.KEEP_CORDONED in annotations_of(world)


def test_a_wish_on_a_failed_node_keeps_the_cordon_through_retry_and_success(make_world):
    world = make_world(nodes=1)
    machine = world.sim.nodes.machine("n1")
    machine.dies_at_reboot = True
    plan = world.plan(world.revision(REBOOT), canary=0, reboot_deadline_seconds=600)
    rollout = world.run(world.started(plan), seconds=3000, step=10)
    world.sim.nodes.keep_cordoned("n1")
    machine.dies_at_reboot = False
    machine.power_on()
    world.tick(300)
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=4000, step=10)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert is_cordoned(world)
    assert not Slot.objects.exists()
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(annotations_of(world))
