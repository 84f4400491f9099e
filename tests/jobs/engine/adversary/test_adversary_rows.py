"""Laws 2 and 12 under attack: rows that were altered, and a database older than its cluster."""

from __future__ import annotations

import json

import pytest
from django.conf import settings
from django.db import connection

from clusters import objects
from clusters.fleet import Taint
from common.errors import WrongState
from jobs.engine import reconcile, step_views
from jobs.models import Plan, Rollout, Slot, Step
from jobs.rollouts import rollout_actions
from profiles.models import Revision

REBOOT = {"cmdline.iommu": "pt"}


# ── law 2: altered rows ───────────────────────────────────────────────────────────────────────────────────────────────


def alter(revision: Revision, value: str) -> None:
    """Alter the row as with a database shell: the model itself refuses."""
    row = Revision.objects.get(pk=revision.pk)
    row.content["settings"][0]["value"] = value
    with connection.cursor() as cursor:
        table = Revision._meta.db_table
        cursor.execute(f"UPDATE {table} SET content = %s WHERE id = %s", [json.dumps(row.content), row.pk])


def test_a_plan_of_an_altered_revision_does_not_start(world):
    plan = world.approved()
    alter(plan.revision, "99")
    with pytest.raises(WrongState, match="digest"):
        rollout_actions.start(Plan.objects.get(pk=plan.pk), by=world.operator)


def test_a_revision_altered_after_the_start_is_not_carried_out(world):
    rollout = world.started()
    alter(rollout.plan.revision, "99")
    world.run(rollout, seconds=30)
    assert rollout.status == "cancelled"
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}


def test_a_revision_altered_meanwhile_holds_a_step_that_is_about_to_write(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision({"vm.swappiness": "11"}), canary=0))
    reconcile.advance(rollout.pk)
    assert rollout.steps.get().status == "applying"
    alter(rollout.plan.revision, "99")
    step_views.target_of.cache_clear()  # as in a worker that starts now
    world.run(rollout, seconds=30)
    assert rollout.steps.get().status == "held"
    assert world.value("n1") == "60"


def test_a_strategy_altered_after_the_start_starts_nothing_more(world):
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "succeeded")
    Plan.objects.filter(pk=rollout.plan_id).update(strategy=rollout.plan.strategy | {"max_failures": 99})
    done = rollout.steps.filter(status="succeeded").count()
    world.tick(5)
    world.run(rollout, seconds=30)

    assert rollout.steps.filter(status="succeeded").count() <= done + 1
    assert rollout.steps.get(node_name="n3").status == "queued"
    assert "digest" in rollout.waiting_for


def test_a_step_whose_class_was_altered_is_held(make_world):
    """An unnoticed change would let a reboot run as a live change, without slot, cordon or drain."""
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    Step.objects.update(worst_class="live")
    world.run(rollout, seconds=30)
    assert rollout.steps.get().status == "held"


def test_a_taint_that_moved_since_the_plan_is_not_overwritten(make_world):
    world = make_world(nodes=1)
    plan = world.plan(world.revision({}, taints=[("example.com/pool", "gold", "NoSchedule")]), canary=0)
    rollout = world.started(plan)
    taint = {"key": "example.com/pool", "value": "silver", "effect": "NoSchedule"}
    node = world.fleet.node("n1")
    world.fleet.taint("n1", node["metadata"]["uid"], add=[Taint(*taint.values())], remove=[])
    world.look()
    world.run(rollout, seconds=30)

    assert rollout.steps.get().status == "held"
    assert [t["value"] for t in world.sim.node("n1")["spec"]["taints"]] == ["silver"]


def test_a_revert_leaves_a_taint_that_somebody_changed_since(make_world):
    world = make_world(nodes=1)
    plan = world.plan(world.revision({}, taints=[("example.com/pool", "gold", "NoSchedule")]), canary=0)
    rollout = world.run(world.started(plan))
    uid = world.fleet.node("n1")["metadata"]["uid"]
    world.fleet.taint("n1", uid, add=[Taint("example.com/pool", "silver", "NoSchedule")], remove=[])
    world.look()
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=30)

    assert rollout.steps.get().status == "held"
    assert [t["value"] for t in world.sim.node("n1")["spec"]["taints"]] == ["silver"]


# ── law 12: a database older than its cluster ─────────────────────────────────────────────────────────────────────────


def test_an_object_newer_than_the_database_is_held_not_overwritten(make_world):
    """The cluster knows steps that the database does not, after a restore from backup."""
    world = make_world(nodes=2)
    plan = world.approved(world.plan(canary=0, batch="2", order="name"))
    forgotten = world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}), canary=0, batch="2")))
    assert world.value("n1") == "30"
    _forget(forgotten)
    type(world.state("n1")).objects.all().delete()
    rollout = rollout_actions.start(plan, by=world.operator)
    before = world.sim.tuning("n1")["spec"]

    world.run(rollout, seconds=20)
    step = rollout.steps.get(node_name="n1")
    assert step.status == "held"
    assert world.sim.tuning("n1")["spec"]["step"][:8] in step.error
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout, seconds=20)
    assert rollout.steps.get(node_name="n1").status == "held", "a retry is no decision to overwrite"
    assert world.sim.tuning("n1")["spec"] == before

    left_out = world.plan(world.revision({"vm.swappiness": "40"})).nodes.values_list("left_out", flat=True)
    assert all("database" in why for why in left_out)


def test_deleting_the_newer_object_is_the_decision_to_go_on(make_world):
    world = make_world(nodes=1)
    forgotten = world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}), canary=0)))
    _forget(forgotten)
    type(world.state("n1")).objects.all().delete()
    world.sim.store.delete("nodetunings", "n1")
    world.look()
    world.observe()

    rollout = world.run(world.started(world.plan(canary=0)), seconds=60)
    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.value("n1") == "10"


def _forget(rollout: Rollout) -> None:
    plan = rollout.plan
    rollout.delete()
    plan.delete()


def test_a_restored_database_does_not_touch_a_node_it_thinks_is_idle(make_world):
    """The cordon of a step that the database does not know is ours by its mark; its node counts as out (law 1)."""
    world = make_world(nodes=2)
    plan = world.approved(world.plan(world.revision(REBOOT), canary=0, batch="2", order="name"))
    uid = world.fleet.node("n1")["metadata"]["uid"]
    world.fleet.cordon("n1", uid, f"{settings.SETPOINT_INSTALLATION}/11111111-2222-4333-8444-555555555555")
    world.look()
    rollout = rollout_actions.start(plan, by=world.operator)
    world.run(rollout, seconds=60)
    assert not Slot.objects.exists()
    assert objects.cordon_owner(world.sim.node("n1")).endswith("555555555555")
