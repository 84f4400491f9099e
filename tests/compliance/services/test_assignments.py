"""Enforce or observe: stronger only by an approved plan, weaker at once, and neither writes unapproved values."""

from __future__ import annotations

from typing import Any

import pytest

from audit.models import Record
from common.errors import NotAllowed, WrongState
from compliance import tasks
from compliance.models import Assignment
from compliance.services import assignments
from contract.nodetuning import Mode, Restore, Spec, Wanted
from jobs.models import Freeze
from jobs.rollouts import freezes
from tests.factories import UserFactory
from tests.jobs.conftest import World


def mode(world: World, node: str) -> str:
    return str(world.fleet.tuning(node)["spec"]["mode"])


def assigned() -> Assignment:
    return Assignment.objects.select_related("pool__cluster").get()


def test_repair_is_switched_on_by_a_plan_though_no_value_changes(world: World) -> None:
    done = world.run(world.started())
    assert mode(world, "n1") == "apply"

    plan = world.plan(done.plan.revision, enforce=True)
    assert {item["kind"] for node in plan.nodes.all() for item in node.change_set.content["items"]} == {"mode"}
    again = world.run(world.started(plan))

    assert again.status == "succeeded"
    assert assigned().mode == "enforce"
    assert {mode(world, name) for name in ("n1", "n2", "n3")} == {"enforce"}
    world.sim.drift("n1", "vm.swappiness", "60")
    world.tick(6)
    assert world.value("n1") == "10"


def test_nothing_is_planned_where_repair_is_on_already(world: World) -> None:
    done = world.run(world.started(enforce=True))
    with pytest.raises(WrongState, match="nothing to plan"):
        world.plan(done.plan.revision, enforce=True)


def test_repair_is_switched_off_at_once_and_the_record_says_by_whom(world: World) -> None:
    world.run(world.started(enforce=True))
    assignments.weaken(assigned(), by=world.operator, reason="two writers fight")

    tasks.soften()
    world.tick(6)

    assert {mode(world, name) for name in ("n1", "n2", "n3")} == {"apply"}
    record = Record.objects.get(action="assignment.observe")
    assert (record.actor, record.message) == ("operator@example.com", "two writers fight")
    world.sim.drift("n1", "vm.swappiness", "60")
    world.tick(6)
    assert world.value("n1") == "60"
    assert world.state("n1").state == "drifted"


def test_after_a_restore_no_agent_is_told_to_stop_repairing_until_an_administrator_confirms(world: World) -> None:
    """The rows are older than the clusters: repair may have been switched on since."""
    world.run(world.started(enforce=True))
    assignments.weaken(assigned(), by=world.operator)
    freeze = Freeze.objects.create(reason=f"{Freeze.RESTORED} of yesterday")
    tasks.soften()
    world.tick(6)
    assert mode(world, "n1") == "enforce"
    freezes.lift(freeze, by=world.admin)
    tasks.soften()
    assert mode(world, "n1") == "apply"


def test_switching_repair_off_writes_no_value_not_even_a_drifted_one(world: World) -> None:
    """60 was the original too, which the step's own `expect` would let the agent write over."""
    world.run(world.started(enforce=True))
    assignments.weaken(assigned(), by=world.operator)
    world.sim.agents.kill("n1")
    world.sim.drift("n1", "vm.swappiness", "60")
    tasks.soften()
    world.sim.agents.restart("n1", "normal")
    world.tick(20)

    assert mode(world, "n1") == "apply"
    assert world.value("n1") == "60"
    assert world.state("n1").state == "drifted"


def test_a_live_rollout_is_not_undermined(world: World) -> None:
    world.run(world.started(enforce=True))
    world.slice(world.started(world.plan(world.revision({"vm.swappiness": "20"}), enforce=True)))
    with pytest.raises(WrongState, match="R-2 works on this pool"):
        assignments.weaken(assigned(), by=world.operator)
    Assignment.objects.update(mode="apply")
    assert assignments.repairing() == {}


def test_what_changed_under_our_hands_is_not_written_over(world: World) -> None:
    world.run(world.started(enforce=True))
    assignments.weaken(assigned(), by=world.operator)
    waiting = assignments.repairing()[world.cluster.pk]

    read = world.fleet.tuning

    def changed_meanwhile(name: str) -> Any:
        raw = read(name)
        world.fleet.tune(name, Spec.from_json(raw["spec"]))
        world.sim.drift(name, "vm.swappiness", "11")
        world.sim.tick(6)  # the agent writes its status: another resourceVersion
        return raw

    world.fleet.tuning = changed_meanwhile  # type: ignore[method-assign]
    assert assignments.soften(world.cluster, waiting[:1]) == 0
    world.fleet.tuning = read  # type: ignore[method-assign]
    assert mode(world, "n1") == "enforce"


def test_only_an_operator_of_the_cluster_may(world: World) -> None:
    world.run(world.started(enforce=True))
    for roles in (["viewer"], ["approver"], ["admin"], ["operator@env:production"]):
        with pytest.raises(NotAllowed):
            assignments.weaken(assigned(), by=UserFactory(roles=roles))
    assert assigned().mode == "enforce"


def test_the_softer_spec_keeps_the_target_and_asks_for_no_write() -> None:
    spec = Spec(
        "uid", "enforce", step="s1", revision="sha256:x",
        settings=(Wanted("vm.swappiness", "=", "10", "60"),), restore=(Restore("a.b", "1", "2"),),
    )  # fmt: skip
    softer = assignments.softened(spec)
    assert (softer.mode, softer.step, softer.revision) == (Mode.APPLY, "s1", "sha256:x")
    assert softer.settings == (Wanted("vm.swappiness", "=", "10", "10"),)
    assert softer.restore == ()


def test_a_second_rollout_reverted_puts_the_first_target_back(world: World) -> None:
    from jobs.rollouts import rollout_actions

    first = world.run(world.started(enforce=True))
    second = world.run(world.started(world.plan(world.revision({"vm.swappiness": "20"}))))
    assert (assigned().revision, assigned().mode) == (second.plan.revision, "apply")
    rollout_actions.revert(second, by=world.operator)
    world.run(second)
    assert (assigned().revision, assigned().mode) == (first.plan.revision, "enforce")
