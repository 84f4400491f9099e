"""Law 4 for components: every state has a deadline and a sentence."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from common.clock import now
from components.helm.errors import HelmUnavailable, HelmWaits
from components.plans.prepared import ReplacedObject
from jobs.diffs.cluster_scope import STATE_TEXTS
from jobs.engine import component_runner, reconcile
from jobs.models import Step
from tests.jobs.component_steps import plan_of, step_of

AGAIN = STATE_TEXTS[Step.Kind.COMPONENT].again


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
    assert step.events.filter(text__startswith="Retrying helm: Kubernetes cluster unreachable").exists()


PROXY = ReplacedObject("apps/v1", "DaemonSet", "daemonsets", "kube-system", "kube-proxy", "u", {"spec": {}})
STAYS = "DaemonSet kube-system/kube-proxy stays until Cilium is ready: 1 of 2 pods are new and ready"


def test_what_goes_last_waits_for_readiness_in_words_and_is_no_failed_try_of_helm(world, releases):
    ready = []

    def wait(stop):
        if not ready:
            raise HelmWaits(STAYS)

    releases.replaced["cilium"], releases.during["cilium"] = (PROXY,), wait
    rollout = world.run(world.started(plan_of(world, "cilium")), seconds=settings.SETPOINT_HELM_SECONDS + 60, step=30)
    step = step_of(rollout, "cilium")
    assert (step.status, step.waiting_for) == ("applying", STAYS), "helm's own time is over, that of readiness is not"
    assert not step.events.filter(text__startswith=AGAIN).exists()

    ready.append(True)
    rollout = world.run(rollout, seconds=120, step=10)
    assert step_of(rollout, "cilium").status == "succeeded"


def test_readiness_that_what_goes_last_waits_for_costs_the_step_both_deadlines(world, releases):
    def wait(stop):
        raise HelmWaits(STAYS)

    releases.replaced["cilium"], releases.during["cilium"] = (PROXY,), wait
    both = settings.SETPOINT_HELM_SECONDS + settings.SETPOINT_READY_SECONDS
    rollout = world.run(world.started(plan_of(world, "cilium")), seconds=both + 300, step=30)
    step = step_of(rollout, "cilium")
    assert (step.status, step.failed_in) == ("failed", "applying")
    assert step.error.startswith("Gave up after 45 min 0 s: DaemonSet kube-system/kube-proxy stays")


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
