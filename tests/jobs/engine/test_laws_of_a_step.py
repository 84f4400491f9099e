"""Laws 4 to 8 of the engine: no silence, cordons, twice and killed, originals first, effective or nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from common.clock import now
from compliance.models import SettingState
from jobs.engine import reconcile
from jobs.models import Slot, Step, StepEvent

REBOOT = {"cmdline.iommu": "pt"}
HUGE = {"hugepages-2Mi": "512"}
ALL = {"vm.swappiness": "10", "vm.max_map_count": ">= 262144", "cmdline.iommu": "pt"}


class Killed(BaseException):
    """Kill -9 in the middle of a step: no handler of the code under test may catch it."""


# ── law 4: no silence ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_state_has_a_deadline_and_every_wait_a_sentence(make_world):
    world = make_world(nodes=2)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=2, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(ALL), canary=1, batch="1"))
    seen = set()
    for _ in range(400):
        world.slice(rollout)
        for step in rollout.steps.filter(is_live=True):
            seen.add(step.status)
            assert step.deadline_at is not None, step.status
            if step.status in Step.ACTIVE:
                assert step.waiting_for, f"{step.status} waits in silence"
        if not rollout.is_live:
            break
        assert rollout.waiting_for, rollout.status
        world.tick(5)
    assert rollout.status == "succeeded"
    assert {"draining", "restarting", "queued"} <= seen


def test_an_agent_that_hangs_costs_its_step_a_deadline(world):
    world.sim.agents.restart("n1", "hanging")
    rollout = world.run(world.started(world.plan(canary=1, order="name", step_deadline_seconds=60)), step=5)

    step = rollout.steps.get(node_name="n1")
    assert step.status == "failed"
    assert "Gave up after" in step.error
    assert rollout.status == "stopped"


def test_a_refusal_fails_a_step_once_it_is_heard_twice(world):
    """An API server that was started a moment ago forbids what it permits as soon as it has read its roles."""
    rollout = world.started(world.plan(canary=1, order="name"))
    world.sim.api.forbidden.add(("patch", "nodetunings"))
    while not (step := rollout.steps.get(node_name="n1")).waiting_for.startswith("The API server refused"):
        assert step.status in Step.ACTIVE or step.status == "queued"
        world.tick(1)
        world.slice(rollout)
    world.sim.api.forbidden.clear()
    assert world.run(rollout).status == "succeeded"


def test_a_right_that_is_missing_fails_a_step_soon_and_in_its_words(world):
    rollout = world.started(world.plan(canary=1, order="name"))
    world.sim.api.forbidden.add(("patch", "nodetunings"))
    world.run(rollout)
    step = rollout.steps.get(node_name="n1")
    assert (rollout.status, step.status) == ("stopped", "failed")
    assert 'cannot patch resource "nodetunings"' in step.error
    assert (now() - step.rollout.started_at).total_seconds() < 60


def test_a_silent_agent_is_named_in_the_wait(world):
    world.sim.agents.kill("n1")
    world.tick(settings.SETPOINT_AGENT_SILENT_SECONDS + 120)
    plan = world.plan()
    assert plan.nodes.get(name="n1").left_out == "The agent has been silent for too long."


def test_a_stopped_rollout_that_nobody_cares_for_aborts_itself(world):
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1")
    rollout = world.run(world.started(world.plan(canary=1, order="name")))
    assert rollout.status == "stopped"

    world.tick(settings.SETPOINT_WAIT_HOURS * 3600 + 60)
    world.run(rollout, seconds=60)

    assert rollout.status == "cancelled"


def test_a_pdb_that_blocks_is_named_and_the_step_is_held_when_time_is_up(make_world):
    world = make_world(nodes=1)
    world.sim.pods.workload("Deployment", "vllm", namespace="chat", replicas=1, labels={"app": "vllm"})
    world.sim.pods.budget("vllm", namespace="chat", labels={"app": "vllm"}, minAvailable=1)
    world.tick(10)
    plan = world.plan(world.revision(REBOOT), canary=0, drain_timeout_seconds=120)
    assert any(f["code"] == "pdb" and "chat/vllm" in f["title"] for f in plan.findings)

    rollout = world.started(plan)
    step = world.until(rollout, "draining")
    for _ in range(5):
        world.slice(rollout)
        world.tick(5)
    step.refresh_from_db()
    assert "chat/vllm" in step.waiting_for
    assert "chat/vllm" in rollout.waiting_for

    step = world.until(rollout, "held", seconds=300)
    assert "chat/vllm" in step.error
    # Nothing was evicted, so the node is given back (law 14).
    assert not world.node("n1").is_cordoned
    assert not Slot.objects.exists()


# ── law 5: cordons ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_foreign_uncordon_is_put_back_once_then_the_step_is_held(make_world):
    world = make_world(nodes=1)
    world.sim.pods.workload("Deployment", "vllm", namespace="chat", replicas=1, labels={"app": "vllm"})
    world.sim.pods.budget("vllm", namespace="chat", labels={"app": "vllm"}, minAvailable=1)
    world.tick(10)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    world.until(rollout, "draining")

    world.sim.nodes.cordon("n1", by="bob@example.org", is_cordoned=False)
    world.tick(5)
    world.slice(rollout)
    assert world.sim.node("n1")["spec"].get("unschedulable"), "put back once"

    world.look()
    world.sim.nodes.cordon("n1", by="bob@example.org", is_cordoned=False)
    world.look()
    step = world.until(rollout, "held", seconds=10)
    assert "uncordoned twice" in step.error
    assert not world.sim.node("n1")["spec"].get("unschedulable"), "the person has the last word"


def test_keep_cordoned_keeps_the_node_cordoned_after_success(make_world):
    world = make_world(nodes=1)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0))
    world.until(rollout, "restarting")
    world.sim.nodes.keep_cordoned("n1")
    world.look()

    world.run(rollout, seconds=3000, step=10)

    assert rollout.status == "succeeded"
    assert world.sim.node("n1")["spec"].get("unschedulable")
    assert not Slot.objects.exists()


# ── law 6: twice, and killed ──────────────────────────────────────────────────────────────────────────────────────────


def test_delivered_twice_nothing_happens_twice(world, monkeypatch):
    """A second delivery arrives inside every call to the cluster of the first."""
    rollout = world.started(world.plan(world.revision(ALL), canary=0, batch="3"))
    calls = []
    for verb in ("tune", "cordon", "uncordon"):
        real = getattr(world.fleet, verb)

        def twice(*args, _real=real, _verb=verb, **kwargs):
            calls.append((_verb, args[0]))
            if len(calls) < 40:
                reconcile.advance(rollout.pk)
            return _real(*args, **kwargs)

        monkeypatch.setattr(world.fleet, verb, twice)
    monkeypatch.setattr(settings, "SETPOINT_PARALLEL_CALLS", 1)

    world.run(rollout, seconds=4000, step=10)

    assert rollout.status == "succeeded"
    for name in ("n1", "n2", "n3"):
        assert calls.count(("cordon", name)) == 1
        assert calls.count(("uncordon", name)) == 1
        assert calls.count(("tune", name)) == 2, "settings once, grant once"


VERBS = ("node", "cordon", "uncordon", "evict", "tune", "pods_on")


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("at", range(1, 9))
def test_killed_at_any_call_the_rollout_goes_on_within_one_lease(make_world, monkeypatch, at, after):
    world = make_world(nodes=1)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=1, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(ALL), canary=0))
    count = 0

    def killer(real):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            mine = count  # a call may make another
            if mine == at and not after:
                raise Killed
            answer = real(*args, **kwargs)
            if mine == at and after:
                raise Killed
            return answer

        return call

    for verb in VERBS:
        monkeypatch.setattr(world.fleet, verb, killer(getattr(world.fleet, verb)))
    # A killed process cannot give its claims back.
    monkeypatch.setattr(reconcile.claims, "release", lambda token: None)

    killed = 0
    for _ in range(400):
        try:
            world.slice(rollout)
        except Killed:
            killed += 1
        rollout.refresh_from_db()
        if not rollout.is_live:
            break
        world.tick(10)

    assert killed == 1
    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.value("n1") == "10"
    assert world.state("n1").original == "60"
    assert world.sim.nodes.peak_unavailable() == 1
    assert not world.sim.node("n1")["spec"].get("unschedulable")
    assert not Slot.objects.exists()
    reboots = [e for e in StepEvent.objects.values_list("text", flat=True) if e.startswith("Booted")]
    assert len(reboots) == 1


def test_a_killed_workers_steps_are_taken_up_when_its_lease_ends_not_before(world):
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.slice(rollout)
    Step.objects.update(claim="dead", lease_until=now() + timedelta(seconds=settings.SETPOINT_LEASE_SECONDS))

    world.tick(settings.SETPOINT_LEASE_SECONDS - 5)
    world.slice(rollout)
    assert not rollout.steps.filter(status="succeeded").exists()

    world.tick(10)
    world.run(rollout, seconds=30)
    assert rollout.status == "succeeded"


def test_the_slower_worker_loses_the_race(world, monkeypatch):
    """Its lease ended while it was slow; what it wants to commit then is dropped."""
    rollout = world.started(world.plan(canary=0, batch="3"))
    real = reconcile._decide

    def slow(views):
        out = real(views)
        Step.objects.update(claim="another")
        return out

    monkeypatch.setattr(reconcile, "_decide", slow)
    reconcile.advance(rollout.pk)

    assert {s.status for s in rollout.steps.all()} == {"queued"}


def test_no_write_starts_with_less_lease_than_its_timeout(world, monkeypatch):
    monkeypatch.setattr(settings, "SETPOINT_LEASE_SECONDS", settings.SETPOINT_CALL_TIMEOUT_SECONDS - 1)
    rollout = world.started(world.plan(canary=0, batch="3"))
    for _ in range(5):
        world.slice(rollout)
        world.tick(1)

    assert not [e for e in world.sim.audit if e.resource == "nodetunings" and e.verb == "patch" and "setpoint" in e.user
                and (e.request or {}).get("spec", {}).get("settings")]  # fmt: skip


# ── law 7: originals first ────────────────────────────────────────────────────────────────────────────────────────────


def test_originals_are_in_the_database_before_spec_is_written(make_world, monkeypatch):
    world = make_world(nodes=1)
    rollout = world.started()
    seen = []
    real = world.fleet.tune

    def tune(node, spec):
        for wanted in spec.settings:
            rows = SettingState.objects.filter(node__name=node, key=wanted.key)
            seen.extend(rows.values_list("has_original", "original"))
        return real(node, spec)

    monkeypatch.setattr(world.fleet, "tune", tune)
    world.run(rollout)

    assert seen == [(True, "60")]


def test_a_second_rollout_does_not_take_our_own_value_for_the_original(world):
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "30"}))))
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "10"}))))

    assert world.state("n1").original == "60"


# ── law 8: effective or nothing ───────────────────────────────────────────────────────────────────────────────────────


def test_pages_that_the_kernel_could_not_allocate_are_a_failure(make_world):
    world = make_world(nodes=1)
    world.sim.kernel("n1").fragmentation = 0.9
    rollout = world.run(world.started(world.plan(world.revision({"hugepages-2Mi": "200000"}), canary=0)), step=5)

    step = rollout.steps.get()
    assert step.status in ("failed", "held")
    assert "hugepages-2Mi" in step.error


def test_huge_pages_count_only_once_the_kubelet_offers_them(make_world):
    world = make_world(nodes=1)
    world.sim.nodes.machine("n1").kubelet_breaks = True
    plan = world.plan(world.revision(HUGE), canary=0, step_deadline_seconds=120)
    rollout = world.run(world.started(plan), seconds=600, step=5)
    assert rollout.steps.get().status != "succeeded"


def test_huge_pages_end_with_one_kubelet_restart_under_a_slot(make_world):
    world = make_world(nodes=1)
    rollout = world.run(world.started(world.plan(world.revision(HUGE), canary=0)), step=5)

    assert rollout.status == "succeeded", rollout.waiting_for
    assert world.node("n1").allocatable["hugepages-2Mi"] != "0"
