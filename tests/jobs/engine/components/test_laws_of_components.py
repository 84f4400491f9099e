"""The engine's laws for a step that is a component: what is approved runs, once, in order, and nothing waits in
silence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import IntegrityError, InterfaceError, transaction

from clusters.models import Cluster
from common.clock import now
from common.errors import WrongState
from components.helm.errors import HelmRefused, HelmUnavailable
from jobs.approvals import reviews
from jobs.diffs import dependency_graph
from jobs.engine import claims, component_runner, reconcile
from jobs.engine.stages import component_stages
from jobs.models import Freeze, Plan, PlanComponent, Rollout, Slot, Step
from jobs.planning import digests
from jobs.rollouts import freezes, rollout_actions
from tests.jobs.conftest import World
from tests.jobs.releases import Releases, altered, wanted


class Killed(BaseException):
    """Kill -9 in the middle of a step: no handler of the code under test may catch it."""


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases(requires={"kueue": ("cert-manager",)}).install(monkeypatch)


def step_of(rollout: Rollout, name: str) -> Step:
    return rollout.steps.get(component=name)


def plan_of(world: World, *names: str, settings: dict[str, str] | None = None, **strategy: Any) -> Plan:
    versions = {n.partition("@")[0]: n.partition("@")[2] for n in names if "@" in n}
    plain = [n for n in names if "@" not in n]
    return world.plan(world.revision(settings or {}, components=wanted(*plain, **versions)), **strategy)


def outcomes(rollout: Rollout) -> dict[str, str]:
    return {s.name: s.status for s in rollout.steps.of_components()}


# ── one plan, one approval, one rollout, one status ───────────────────────────────────────────────────────────────────


def test_one_rollout_carries_out_settings_and_components(world, releases):
    plan = plan_of(world, "kueue", "cert-manager", settings={"vm.swappiness": "10"}, canary=0, batch="100%")
    assert list(plan.components.values_list("component", flat=True)) == ["cert-manager", "kueue"]

    rollout = world.run(world.started(plan))

    assert rollout.status == "succeeded"
    assert set(outcomes(rollout).values()) == {"succeeded"}
    assert releases.writes == [("cert-manager", "1.0.0"), ("kueue", "1.0.0")]
    assert world.value("n1") == "10"
    assert not Slot.objects.exists()


def test_a_plan_of_components_alone_only_has_the_nodes_watched(world, releases):
    rollout = world.run(world.started(plan_of(world, "cert-manager")))

    assert rollout.status == "succeeded"
    assert outcomes(rollout) == {"cert-manager": "succeeded"}
    assert world.value("n1") == "60"
    assert set(world.pool.standings.values_list("state", flat=True)) == {"compliant"}


def test_components_are_carried_out_where_no_node_can_be_changed(world, releases):
    for name in ("n1", "n2", "n3"):
        world.sim.nodes.cordon(name, by="bob@example.org")
    world.look()
    plan = plan_of(world, "cert-manager")
    assert not plan.is_blocked

    assert world.run(world.started(plan)).status == "succeeded"
    assert releases.version("cert-manager") == "1.0.0"


def test_what_is_as_wanted_already_is_left_alone(world, releases):
    world.run(world.started(plan_of(world, "cert-manager")))
    plan = plan_of(world, "cert-manager", "volcano")

    assert plan.components.get(component="cert-manager").left_out == "It is already compliant."
    rollout = world.run(world.started(plan))
    assert outcomes(rollout) == {"volcano": "succeeded"}

    with pytest.raises(WrongState, match="nothing to plan"):
        plan_of(world, "cert-manager", "volcano")


def test_after_a_failure_to_get_ready_the_same_can_be_planned_again_and_is_only_looked_at(world, releases):
    releases.broken["cert-manager"] = "Deployment a: exceeded quota"
    rollout = world.run(world.started(plan_of(world, "cert-manager")))
    assert outcomes(rollout) == {"cert-manager": "failed"}
    runs = releases.writes.copy()

    still = plan_of(world, "cert-manager")
    assert not still.is_blocked
    assert still.components.get().left_out == ""
    assert any("exceeded quota" in finding["detail"] for finding in still.findings)
    reviews.withdraw(still, by=world.operator)

    releases.broken.clear()
    plan = plan_of(world, "cert-manager")
    assert not plan.is_blocked
    rollout = world.run(world.started(plan))
    assert (rollout.status, outcomes(rollout)) == ("succeeded", {"cert-manager": "succeeded"})
    assert releases.writes == runs, "nothing is installed a second time"
    with pytest.raises(WrongState, match="nothing to plan"):
        plan_of(world, "cert-manager")


def test_a_component_that_is_not_ready_any_more_is_not_as_wanted(world, releases):
    world.run(world.started(plan_of(world, "cert-manager")))
    releases.not_ready["cert-manager"] = "Deployment a: 0 of 2 pods"
    plan = plan_of(world, "cert-manager")
    assert plan.components.get().left_out == ""
    assert "0 of 2 pods" in str(plan.findings)


def test_what_blocks_a_component_blocks_the_plan(world, releases):
    from components.release.work import PlanNote

    releases.notes["cilium"] = (
        PlanNote(severity="block", code="gitops", title="Argo CD owns the release", detail="Commit it there."),
    )
    plan = plan_of(world, "cilium")

    assert plan.is_blocked
    assert [f["title"] for f in plan.findings if f["severity"] == "block"] == ["cilium: Argo CD owns the release"]


def test_a_component_that_cannot_be_prepared_blocks_the_plan_with_the_reason(world, releases, monkeypatch):
    def refuse(cluster, wanted):
        raise HelmRefused("values.replicas: must be an integer")

    monkeypatch.setattr("components.release.work.prepare", refuse)
    plan = plan_of(world, "cert-manager")

    assert [(f["title"], f["detail"]) for f in plan.findings if f["severity"] == "block"] == [
        ("cert-manager cannot be prepared", "values.replicas: must be an integer")
    ]
    assert plan.shown_class == "unknown", "nothing is known of what it would do"


def test_a_class_is_shown_where_every_component_was_prepared(world, releases):
    plan = plan_of(world, "cert-manager")

    assert plan.shown_class == plan.worst_class != "unknown"


# ── one owning assignment ─────────────────────────────────────────────────────────────────────────────────────────────


def _other_pool(world: World) -> None:
    from clusters.models import Pool

    world.run(world.started(plan_of(world, "cert-manager")))
    world.pool = Pool.objects.create(cluster=world.cluster, name="infer", selector={"matchLabels": {"pool": "infer"}})
    world.sim.add_node("i1", gpus=8, labels={"pool": "infer"})
    world.observe()


def test_identical_wishes_of_two_pools_share_one_component(world, releases):
    _other_pool(world)
    plan = plan_of(world, "cert-manager", settings={"vm.swappiness": "10"})

    row = plan.components.get()
    assert "train wants the very same" in row.left_out
    assert not plan.is_blocked


def test_different_wishes_of_two_pools_block_and_name_the_other(world, releases):
    _other_pool(world)
    plan = plan_of(world, "cert-manager@2.0.0")

    block = next(f for f in plan.findings if f["severity"] == "block")
    assert block["code"] == "component-owner"
    assert "train" in block["title"]


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
    last = rollout.steps.of_nodes().order_by("-entered_at").first()
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


# ── law 4: no silence ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_state_of_a_component_has_a_deadline_and_every_wait_a_sentence(world, releases):
    releases.not_ready["cert-manager"] = "a pod is missing"
    releases.after["volcano"] = ("nodes",)
    plan = plan_of(world, "kueue", "cert-manager", "volcano", settings={"vm.swappiness": "10"}, soak_seconds=30)
    rollout = world.started(plan)
    seen = set()
    for turn in range(60):
        reconcile.run(rollout.pk)
        for part in (0, 1):
            for step in rollout.steps.of_components().filter(is_live=True):
                seen.add(step.status)
                assert step.deadline_at is not None
                assert step.deadline_at > now(), f"{step} waits for a deadline that is over"
                assert step.waiting_for, f"{step} is {step.status} in silence"
            if part == 0:
                world.slice(rollout)
        if not rollout.is_live:
            break
        if turn == 12:
            releases.not_ready.clear()
        world.tick(5)
    assert rollout.status == "succeeded"
    assert seen == {"queued", "applying", "verifying"}


def test_without_a_helm_worker_the_step_ends_and_says_which_queue(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    for _ in range(5):
        reconcile.run(rollout.pk)
        world.tick(1000)

    step = step_of(rollout, "cert-manager")
    assert step.status == "failed"
    assert "queue `helm`" in step.error


def test_helm_that_does_not_end_costs_its_step_the_deadline(world, releases):
    def hang(stop):
        raise HelmUnavailable("Kubernetes cluster unreachable")

    releases.during["cert-manager"] = hang
    rollout = world.run(
        world.started(plan_of(world, "cert-manager")), seconds=settings.SETPOINT_HELM_SECONDS * 2, step=30
    )

    step = step_of(rollout, "cert-manager")
    assert step.status == "failed"
    assert step.error.startswith("Gave up after 15 min")
    assert "Kubernetes cluster unreachable" in step.error
    assert step.output[-1] == "cert-manager: from nothing to 1.0.0", "what helm said last stays readable"
    assert step.events.filter(text__startswith="helm is tried again: Kubernetes cluster unreachable").exists()


def test_readiness_that_does_not_come_costs_its_step_the_deadline(world, releases):
    releases.not_ready["cert-manager"] = "Deployment webhook: 0 of 1 pods ready on n2"
    rollout = world.run(
        world.started(plan_of(world, "cert-manager")), seconds=settings.SETPOINT_READY_SECONDS + 300, step=30
    )

    step = step_of(rollout, "cert-manager")
    assert (step.status, step.failed_in) == ("failed", "verifying")
    assert step.error.startswith("Gave up after 30 min")
    assert "0 of 1 pods ready on n2" in step.error


def test_readiness_is_looked_at_soon_and_then_ever_less_often(world, releases):
    releases.not_ready["cert-manager"] = "a pod is missing"
    rollout = world.run(world.started(plan_of(world, "cert-manager")), seconds=20)
    step = step_of(rollout, "cert-manager")
    assert step.status == "verifying"

    for took, pause, comes_soon in ((0, 0.25, True), (2, 0.5, True), (6, 1.5, True), (10, 2.5, False), (99, 3, False)):
        Step.objects.filter(pk=step.pk).update(entered_at=now() - timedelta(seconds=took), not_before=None)
        reconcile.advance(rollout.pk, fleet=world.fleet)
        step.refresh_from_db()
        assert step.not_before - now() == timedelta(seconds=pause)
        assert component_runner.seconds_to_next_check(rollout.pk) == (pause if comes_soon else None)


def test_waiting_for_long_node_settings_is_no_deadline_missed(world, releases):
    releases.after["volcano"] = ("nodes",)
    plan = plan_of(world, "volcano", settings={"vm.swappiness": "10"}, canary=1, batch="1", soak_seconds=20 * 3600)
    rollout = world.started(plan)
    world.run(rollout, seconds=70 * 3600, step=1800)

    assert step_of(rollout, "volcano").status == "succeeded"


# ── law 6: twice, and killed ──────────────────────────────────────────────────────────────────────────────────────────


def test_delivered_twice_helm_runs_once(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    pk = step_of(rollout, "cert-manager").pk

    def again(stop):
        assert component_runner.carry_out(pk) is None
        reconcile.advance(rollout.pk)

    releases.during["cert-manager"] = again
    component_runner.carry_out(pk)
    component_runner.carry_out(pk)

    assert releases.runs == {("cert-manager", "forward"): 1}
    assert world.run(rollout).status == "succeeded"


def test_a_worker_killed_inside_helm_costs_a_lease_and_the_next_attempt_mends(world, releases, monkeypatch):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    pk = step_of(rollout, "cert-manager").pk

    def die(stop):
        del releases.during["cert-manager"]
        raise Killed

    releases.during["cert-manager"] = die
    with monkeypatch.context() as patch:
        patch.setattr(claims, "release", lambda token: None)  # a killed process cannot give its claims back
        with pytest.raises(Killed):
            component_runner.carry_out(pk)
    assert releases.there["cert-manager"].pending == "pending-install"
    assert component_runner.carry_out(pk) is None, "somebody may still be at it"

    world.clock.forward(settings.SETPOINT_LEASE_SECONDS + 1)
    assert component_runner.carry_out(pk)
    assert not releases.there["cert-manager"].pending
    assert world.run(rollout).status == "succeeded"
    assert releases.writes == [("cert-manager", "1.0.0")]


LINES = 120
"""More than one carrying and one slice have in jobs/engine, each line of which kills one run."""


def test_killed_at_any_line_the_rollout_goes_on_within_a_lease(world, releases, monkeypatch):
    """One rollout, killed over and over: at the first line of the engine's files, then at the second, and so on."""
    import sys

    watched = {module.__file__ for module in (component_runner, component_stages, dependency_graph)}
    release = claims.release
    monkeypatch.setattr(claims, "release", lambda token: None)
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    lines, killed = 0, 0

    def tracing(at):
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            if frame.f_code.co_filename not in watched:
                return None
            if event == "line":
                count += 1
                if count == at:
                    raise Killed
            return trace

        return trace

    for at in range(1, 4000, 7):
        before = sys.gettrace()
        sys.settrace(tracing(at))
        try:
            reconcile.run(rollout.pk)
            for pk in component_runner.due_steps(rollout.pk):
                component_runner.carry_out(pk)
        except Killed:
            killed += 1
        finally:
            sys.settrace(before)
        world.tick(settings.SETPOINT_LEASE_SECONDS + 1)
        rollout.refresh_from_db()
        lines = at
        if not rollout.is_live:
            break
    monkeypatch.setattr(claims, "release", release)
    world.run(rollout, seconds=300)

    assert killed > 10, (killed, lines)
    assert rollout.status == "succeeded"
    assert releases.writes == [("cert-manager", "1.0.0"), ("kueue", "1.0.0")]


def test_a_lost_claim_ends_helm(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    step = step_of(rollout, "cert-manager")
    token, taken = claims.claim_for_helm(step.pk)
    renewal = component_runner.ClaimRenewal(taken, token)
    renewal.beat()
    assert not renewal.is_over()
    step.refresh_from_db()
    assert step.lease_until > now()

    claims.release(token)
    renewal.beat()
    assert renewal.is_over()


def test_a_database_that_goes_away_ends_helm_only_with_the_lease(world, releases, monkeypatch):
    """Django's InterfaceError is no DatabaseError; what a restarted PostgreSQL leaves is a connection to be closed."""
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    token, taken = claims.claim_for_helm(step_of(rollout, "cert-manager").pk)
    renewal, closed, real = component_runner.ClaimRenewal(taken, token), [], claims.renew

    def gone(*_: object) -> bool:
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(component_runner, "close_old_connections", lambda: closed.append(True))
    monkeypatch.setattr(claims, "renew", gone)
    renewal.beat()
    assert (renewal.is_over(), closed) == (False, [True])
    monkeypatch.setattr(claims, "renew", real)
    renewal.beat()
    assert not renewal.is_over()

    monkeypatch.setattr(claims, "renew", gone)
    world.clock.forward(settings.SETPOINT_LEASE_SECONDS + 1)
    renewal.beat()
    assert renewal.why == "its lease could not be renewed in time"


def test_helm_does_not_go_on_without_whoever_keeps_its_claim(world, releases, monkeypatch):
    def broken(_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(component_runner, "SHOWS_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(component_runner.ClaimRenewal, "beat", broken)
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    stopped: list[bool] = []

    def while_it_runs(stop):
        import time

        until = time.monotonic() + 10
        while not stop() and time.monotonic() < until:
            time.sleep(0.01)
        stopped.append(stop())

    releases.during["cert-manager"] = while_it_runs
    component_runner.carry_out(step_of(rollout, "cert-manager").pk)

    assert stopped == [True]


def test_a_thread_keeps_the_claim_while_helm_runs_and_shows_what_it_says(world, releases, monkeypatch):
    monkeypatch.setattr(component_runner, "SHOWS_EVERY_SECONDS", 0.01)
    beats: list[list[str]] = []
    monkeypatch.setattr(component_runner.ClaimRenewal, "beat", lambda self: beats.append(self.lines()))
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)

    def while_it_runs(stop):
        import time

        until = time.monotonic() + 10
        while not any(beats) and time.monotonic() < until:
            time.sleep(0.01)

    releases.during["cert-manager"] = while_it_runs
    component_runner.carry_out(step_of(rollout, "cert-manager").pk)

    assert ["cert-manager: from nothing to 1.0.0"] in beats
    assert step_of(rollout, "cert-manager").output == ["cert-manager: from nothing to 1.0.0"]


# ── law 10: verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_revert_puts_components_back_in_the_other_order(world, releases):
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager", settings={"vm.swappiness": "10"})))
    releases.writes.clear()

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert rollout.status == "reverted"
    assert releases.writes == [("kueue", ""), ("cert-manager", "")]
    assert set(outcomes(rollout).values()) == {"reverted"}
    assert world.value("n1") == "60"


def test_a_revert_of_an_upgrade_brings_the_earlier_version_back(world, releases):
    world.run(world.started(plan_of(world, "cert-manager@1.0.0")))
    rollout = world.run(world.started(plan_of(world, "cert-manager@2.0.0")))
    assert releases.version("cert-manager") == "2.0.0"

    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)

    assert (rollout.status, releases.version("cert-manager")) == ("reverted", "1.0.0")


def test_a_component_that_others_require_does_not_go_back_alone(world, releases):
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))

    with pytest.raises(WrongState, match="kueue requires cert-manager"):
        rollout_actions.revert(rollout, by=world.operator, step=step_of(rollout, "cert-manager"))

    rollout_actions.revert(rollout, by=world.operator, step=step_of(rollout, "kueue"))
    world.run(rollout)
    assert outcomes(rollout) == {"cert-manager": "succeeded", "kueue": "reverted"}


def test_what_could_not_be_put_back_holds_what_it_requires(world, releases):
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))
    releases.broken["kueue"] = "its finalizer does not end"
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=60)

    assert outcomes(rollout) == {"cert-manager": "held", "kueue": "failed"}
    assert "kueue, which requires it" in step_of(rollout, "cert-manager").error
    releases.broken.clear()
    rollout_actions.retry_failed(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.status == "reverted"


def test_node_settings_go_back_after_the_component_that_came_after_them(world, releases):
    releases.after["gpu-operator"] = ("nodes",)
    plan = plan_of(world, "gpu-operator", settings={"vm.swappiness": "10"}, canary=0, batch="100%")
    rollout = world.run(world.started(plan))
    releases.not_ready["gpu-operator"] = "a pod is ending"
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=30)

    assert set(rollout.steps.of_nodes().values_list("status", flat=True)) == {"queued"}
    releases.not_ready.clear()
    assert world.run(rollout).status == "reverted"


def test_an_abort_that_puts_back_ends_helm_and_turns_the_step(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    reconcile.run(rollout.pk)
    step = step_of(rollout, "cert-manager")
    stopped: list[bool] = []
    real = component_runner.ClaimRenewal.__enter__

    def entered(self):
        beats.append(self)
        return real(self)

    beats: list[component_runner.ClaimRenewal] = []

    def abort(stop):
        rollout_actions.abort(Rollout.objects.get(pk=rollout.pk), by=world.operator, in_flight="revert")
        assert not stop()
        beats[0].beat()
        stopped.append(stop())

    releases.during["cert-manager"] = abort
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_runner.ClaimRenewal, "__enter__", entered)
        component_runner.carry_out(step.pk)
    del releases.during["cert-manager"]

    assert stopped == [True]
    assert releases.there["cert-manager"].pending == "pending-install"
    rollout.refresh_from_db()
    world.run(rollout)
    assert outcomes(rollout) == {"cert-manager": "reverted", "kueue": "skipped"}
    assert rollout.status == "cancelled"
    assert (releases.version("cert-manager"), releases.there["cert-manager"].pending) == ("", "")


def test_an_abort_that_lets_finish_lets_helm_finish(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    reconcile.run(rollout.pk)
    releases.during["cert-manager"] = lambda stop: rollout_actions.abort(
        Rollout.objects.get(pk=rollout.pk), by=world.operator
    )
    component_runner.carry_out(step_of(rollout, "cert-manager").pk)
    rollout.refresh_from_db()
    world.run(rollout)

    assert outcomes(rollout) == {"cert-manager": "succeeded", "kueue": "skipped"}
    assert rollout.status == "cancelled"


def test_an_abort_passes_over_what_helm_has_not_begun(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    rollout_actions.abort(Rollout.objects.get(pk=rollout.pk), by=world.operator)
    reconcile.run(rollout.pk)
    assert outcomes(rollout) == {"cert-manager": "skipped"}

    rollout.refresh_from_db()
    world.run(rollout)
    assert rollout.status == "cancelled"
    assert not releases.runs


def test_a_pause_lets_helm_finish_and_starts_no_other(world, releases):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    reconcile.run(rollout.pk)
    rollout_actions.pause(Rollout.objects.get(pk=rollout.pk), by=world.operator)
    for _ in range(5):
        world.slice(rollout)
        world.tick(5)

    assert outcomes(rollout) == {"cert-manager": "succeeded", "kueue": "queued"}


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
