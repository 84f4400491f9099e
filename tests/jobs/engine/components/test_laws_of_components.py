"""The engine's laws for a step that is a component: what is approved runs, once, in order, and nothing waits in
silence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from clusters.models import Cluster
from common.clock import now
from common.errors import WrongState
from jobs.engine import component_runner, reconcile
from jobs.models import CalendarRule, Freeze, PlanComponent, Step
from jobs.planning import digests
from jobs.rollouts import freezes, rollout_actions
from tests.jobs.component_steps import outcomes, plan_of, step_of
from tests.jobs.releases import altered

# ── law 2: what was approved is what runs ─────────────────────────────────────────────────────────────────────────────


def test_digests_of_plans_without_components_are_what_they_were(world, releases):
    from jobs.diffs.changes import digest

    plan = world.plan()
    rows = plan.nodes.values_list("uid", "change_set_id", "worst_class", "batch", "is_unavailable", "left_out")
    assert plan.digest == "sha256:" + digest(
        {
            "cluster": plan.cluster.uid,
            "pool": plan.pool.name,
            "selector": plan.selector,
            "revision": plan.revision.digest,
            "strategy": plan.strategy,
            "budget": plan.summary["budget"],
            "nodes": sorted([u, c, w, min(b, 3), o, left] for u, c, w, b, o, left in rows),
            "authors": sorted(map(int, plan.authorship)),
            "judgement": plan.judgement,
        }
    )


def test_the_digest_covers_each_component(world, releases):
    plan = plan_of(world, "cert-manager")
    for fields in ({"digest": "sha256:" + "0" * 64}, {"requires": ["volcano"]}, {"left_out": "not now"}):
        before = PlanComponent.objects.filter(plan=plan).values().get()
        PlanComponent.objects.filter(plan=plan).update(**fields)
        assert digests.plan_digest(plan) != plan.digest, fields
        PlanComponent.objects.filter(plan=plan).update(**{name: before[name] for name in fields})  # type: ignore[literal-required]
    assert digests.plan_digest(plan) == plan.digest


def test_a_component_changed_after_approval_does_not_start(world, releases):
    plan = world.approved(plan_of(world, "cert-manager"))
    row = plan.components.get()
    PlanComponent.objects.filter(pk=row.pk).update(prepared=altered(row.prepared, version="6.6.6"))

    with pytest.raises(WrongState, match="not what was approved"):
        rollout_actions.start(plan, by=world.operator)


def test_a_component_changed_while_it_waits_is_held_and_helm_never_runs(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    row = rollout.plan.components.get(component="kueue")
    PlanComponent.objects.filter(pk=row.pk).update(prepared=altered(row.prepared, version="6.6.6"))

    world.run(rollout, seconds=30)

    assert outcomes(rollout) == {"cert-manager": "succeeded", "kueue": "held"}
    assert "not what was approved" in step_of(rollout, "kueue").error
    assert releases.runs["kueue", "forward"] == 0


def test_a_component_changed_while_it_waits_for_a_worker_is_held(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    row = rollout.plan.components.get()
    PlanComponent.objects.filter(pk=row.pk).update(digest="sha256:" + "0" * 64)

    assert component_runner.carry_out(step_of(rollout, "cert-manager").pk)

    assert step_of(rollout, "cert-manager").status == "held"
    assert not releases.runs


def test_an_altered_plan_is_not_left_to_helm(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    reconcile.run(rollout.pk)
    PlanComponent.objects.filter(plan=rollout.plan, component="kueue").update(requires=[])

    assert component_runner.carry_out(step_of(rollout, "cert-manager").pk)

    assert step_of(rollout, "cert-manager").status == "held"
    assert not releases.runs


def test_a_freeze_keeps_components_from_starting(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    freezes.freeze(cluster=world.cluster, reason="release week", by=world.operator)
    world.run(rollout, seconds=10)

    assert step_of(rollout, "cert-manager").status == "queued"
    Freeze.objects.update(lifted_at=now())
    assert world.run(rollout).status == "succeeded"


def test_a_freeze_sends_what_helm_has_not_begun_back_to_wait(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    assert step_of(rollout, "cert-manager").status == "applying"
    freezes.freeze(cluster=world.cluster, reason="release week", by=world.operator)

    world.slice(rollout)

    step = step_of(rollout, "cert-manager")
    assert (step.status, step.has_applied) == ("queued", False)
    assert not releases.runs


def test_a_window_that_closes_sends_what_helm_has_not_begun_back_to_wait(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    assert step_of(rollout, "cert-manager").status == "applying"
    start = now() + timedelta(days=1)
    CalendarRule.objects.create(name="night", kind="window", starts=f"{start:%Y-%m-%dT%H:%M}", zone="UTC", minutes=60)
    for _ in range(3):
        world.slice(rollout)
        world.tick(2)

    assert step_of(rollout, "cert-manager").status == "queued"
    assert "night" in rollout.waiting_for
    assert not releases.runs
    CalendarRule.objects.update(ended_at=now())
    assert world.run(rollout).status == "succeeded"


# ── order, and law 3: what fails stops what depends on it ─────────────────────────────────────────────────────────────


def test_a_component_waits_for_what_it_requires_and_says_so(world, releases):
    releases.not_ready["cert-manager"] = "Deployment cert-manager-webhook has 0 of 1 pods ready"
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    world.run(rollout, seconds=20)

    assert outcomes(rollout) == {"cert-manager": "verifying", "kueue": "queued"}
    assert step_of(rollout, "kueue").waiting_for == "Waits for cert-manager, which is getting ready."
    assert "cert-manager-webhook has 0 of 1" in rollout.waiting_for

    releases.not_ready.clear()
    assert world.run(rollout).status == "succeeded"


def test_after_nodes_waits_for_the_node_settings(world, releases):
    releases.after["gpu-operator"] = ("nodes",)
    plan = plan_of(world, "gpu-operator", settings={"vm.swappiness": "10"}, canary=1, batch="1", soak_seconds=60)
    rollout = world.started(plan)
    world.run(rollout, seconds=30)

    assert step_of(rollout, "gpu-operator").status == "queued"
    assert step_of(rollout, "gpu-operator").waiting_for.startswith("Waits for the node settings: 2 nodes")
    assert world.run(rollout).status == "succeeded"
    last = rollout.steps.of_nodes().order_by("-entered_at", "-pk").first()
    assert step_of(rollout, "gpu-operator").entered_at >= last.entered_at


def test_after_nodes_waits_for_no_node_that_is_given_no_value(world, releases):
    releases.after["gpu-operator"] = ("nodes",)
    plan = plan_of(world, "gpu-operator", settings={}, canary=1, batch="1", soak_seconds=600)
    assert plan.summary["watched"] == 3
    rollout = world.started(plan)
    world.run(rollout, seconds=120)

    assert step_of(rollout, "gpu-operator").status == "succeeded"
    assert rollout.steps.of_nodes().filter(status="queued").exists()
    assert rollout.status == "running"


def test_nodes_wait_for_no_component(world, releases):
    releases.not_ready["cert-manager"] = "a pod is missing"
    rollout = world.started(plan_of(world, "cert-manager", settings={"vm.swappiness": "10"}))
    world.run(rollout, seconds=120)

    assert set(rollout.steps.of_nodes().values_list("status", flat=True)) == {"succeeded"}


def test_what_fails_stops_only_what_requires_it(world, releases):
    releases.broken["cert-manager"] = "the webhook's image does not exist"
    plan = plan_of(world, "kueue", "cert-manager", "volcano", settings={"vm.swappiness": "10"})
    rollout = world.run(world.started(plan))

    assert outcomes(rollout) == {
        "cert-manager": "failed",
        "kueue": "queued",
        "volcano": "succeeded",
    }
    assert set(rollout.steps.of_nodes().values_list("status", flat=True)) == {"succeeded"}
    assert rollout.status == "stopped"
    assert "1 component failed" in rollout.waiting_for
    assert step_of(rollout, "cert-manager").error == "the webhook's image does not exist"
    assert step_of(rollout, "kueue").waiting_for == "Waits for cert-manager, which failed."


def test_nodes_that_fail_stop_new_components(world, releases):
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1")
    releases.after["volcano"] = ("nodes",)
    rollout = world.run(world.started(plan_of(world, "volcano", settings={"vm.swappiness": "10"}, order="name")))

    assert rollout.status == "stopped"
    assert step_of(rollout, "volcano").status == "queued"
    assert not releases.runs


def test_retry_goes_on_from_what_failed(world, releases):
    releases.broken["cert-manager"] = "no image"
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))
    releases.broken.clear()

    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "succeeded"
    assert step_of(rollout, "cert-manager").attempt == 2


def test_a_skipped_component_lets_those_go_on_that_require_it(world, releases):
    releases.broken["cert-manager"] = "no image"
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))

    rollout_actions.skip(rollout, step_of(rollout, "cert-manager"), by=world.operator)
    world.run(rollout)

    assert outcomes(rollout) == {"cert-manager": "skipped", "kueue": "succeeded"}


# ── one release, one rollout; law 12; law 14 ──────────────────────────────────────────────────────────────────────────


def test_two_rollouts_never_touch_one_release(world, releases):
    first = world.approved(plan_of(world, "cert-manager"))
    second = world.approved(plan_of(world, "cert-manager"))
    rollout = rollout_actions.start(first, by=world.operator)

    with pytest.raises(WrongState, match=rf"R-{rollout.number} \(cert-manager\) works on some of these"):
        rollout_actions.start(second, by=world.operator)


def test_the_database_keeps_a_release_to_one_live_step(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    other = plan_of(world, "cert-manager").components.get()
    step = step_of(rollout, "cert-manager")
    fields = {"rollout": rollout, "kind": "component", "component": "cert-manager", "batch": 0, "position": 9}

    with pytest.raises(IntegrityError), transaction.atomic():
        Step.objects.create(**fields, plan_component=other, release=step.release)
    with pytest.raises(IntegrityError), transaction.atomic():
        Step.objects.create(**fields, plan_component=other, release="x", node=world.node("n1"))
    with pytest.raises(IntegrityError), transaction.atomic():
        Step.objects.create(rollout=rollout, batch=1, position=9)


def test_a_later_rollout_of_the_same_release_forbids_going_back(world, releases):
    first = world.run(world.started(plan_of(world, "cert-manager@1.0.0")))
    world.run(world.started(plan_of(world, "cert-manager@2.0.0")))

    with pytest.raises(WrongState, match="A later rollout changed cert-manager"):
        rollout_actions.revert(first, by=world.operator, step=step_of(first, "cert-manager"))


def test_helm_runs_in_no_cluster_of_another_installation(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    Cluster.objects.update(ownership=Cluster.Ownership.FOREIGN, ownership_mark="somebody")

    assert component_runner.carry_out(step_of(rollout, "cert-manager").pk) is None
    assert not releases.runs


def test_a_failure_leaves_the_release_to_a_person_and_is_not_passed_over_by_an_abort(world, releases):
    releases.broken["cert-manager"] = "no image"
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))
    rollout_actions.retry_failed(rollout, by=world.operator)
    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout, seconds=60)

    assert outcomes(rollout) == {"cert-manager": "failed", "kueue": "skipped"}
    assert rollout.status == "cancelled"
    step = step_of(rollout, "cert-manager")
    assert step.has_applied
    assert timedelta(0) <= now() - step.entered_at
