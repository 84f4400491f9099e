"""GPU health gates of a rollout."""

from __future__ import annotations

from datetime import timedelta

import pytest

from common.clock import now
from gpus.effects import gates, studies
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import polling
from gpus.storage import history
from jobs.models import Rollout, Signal
from jobs.rollouts import engine_signals
from tests.gpus.studying import Worked

pytestmark = pytest.mark.django_db


@pytest.fixture
def running(clock, monkeypatch):
    """Six nodes were changed half an hour ago, and a source that was read just now."""

    def make(**strategy):
        scenario = Worked(6, ago=timedelta(minutes=30), **strategy)
        scenario.truth.noise = 0.0
        monkeypatch.setattr(history, "buckets", scenario.truth.buckets)
        Rollout.objects.update(status="running", finished_at=None)
        scenario.rollout.refresh_from_db()
        polling.reconcile()
        TelemetrySource.objects.update(read_at=now())
        studies.adopt()
        return scenario

    return make


def signal_reason(scenario: Worked, kind: str) -> str | None:
    scenario.rollout.refresh_from_db()
    signal = engine_signals.newest_signal(scenario.rollout, kind)
    return signal.reason if signal else None


def xid(code: int, count: int = 1, kind: str = "last") -> None:
    GpuDevice.objects.update(xids=[[code, count, kind]])


def test_where_all_is_well_it_says_so_once_the_time_is_over(running, clock):
    scenario = running(gate_xids=True, gate_fall_percent=10, gate_minutes=60)
    gates.refresh(scenario.rollout)
    assert signal_reason(scenario, engine_signals.LOOK) is None
    clock.forward(minutes=36)
    TelemetrySource.objects.update(read_at=now())
    gates.refresh(scenario.rollout)
    assert (signal_reason(scenario, engine_signals.LOOK), signal_reason(scenario, engine_signals.GATE)) == ("", None)


def test_without_fresh_readings_it_says_nothing(running):
    scenario = running(gate_xids=True)
    TelemetrySource.objects.update(read_at=now() - timedelta(minutes=10))
    gates.refresh(scenario.rollout)
    assert not Signal.objects.exists()


def test_a_new_xid_shuts_the_gate_and_an_old_one_does_not(running):
    scenario = running(gate_xids=True)
    xid(48)
    gates.refresh(scenario.rollout)
    assert signal_reason(scenario, engine_signals.GATE) is None
    xid(79)
    gates.refresh(scenario.rollout)
    assert signal_reason(scenario, engine_signals.GATE) == "New since it began: XID 79 on n000, GPU ."
    assert scenario.rollout.events.filter(text__contains="XID 79").count() == 1
    gates.refresh(scenario.rollout)
    assert scenario.rollout.events.filter(text__contains="XID 79").count() == 1


def test_one_of_the_application_does_not(running):
    scenario = running(gate_xids=True)
    gates.refresh(scenario.rollout)
    xid(13)
    gates.refresh(scenario.rollout)
    assert signal_reason(scenario, engine_signals.GATE) is None


def test_a_counter_that_rose_is_new(running):
    scenario = running(gate_xids=True)
    xid(79, 2, "total")
    gates.refresh(scenario.rollout)
    xid(79, 3, "total")
    gates.refresh(scenario.rollout)
    assert "XID 79" in (signal_reason(scenario, engine_signals.GATE) or "")


def test_after_a_person_had_it_go_on_the_same_one_is_old(running, clock):
    scenario = running(gate_xids=True)
    gates.refresh(scenario.rollout)
    xid(79)
    gates.refresh(scenario.rollout)
    clock.forward(minutes=1)
    Rollout.objects.update(went_on_at=now())
    scenario.rollout.refresh_from_db()
    clock.forward(minutes=1)
    TelemetrySource.objects.update(read_at=now())
    gates.refresh(scenario.rollout)
    assert signal_reason(scenario, engine_signals.GATE) is None


def test_a_fall_beyond_the_bound_shuts_the_gate_with_its_n(running):
    scenario = running(gate_fall_percent=10)
    scenario.truth.effect = -0.2
    gates.refresh(scenario.rollout)
    reason = signal_reason(scenario, engine_signals.GATE) or ""
    assert reason.startswith("OFU fell by 20.0 % (10 % are allowed) on 12 GPUs of 6 nodes")
    assert signal_reason(scenario, engine_signals.LOOK) is None
    reads = len(scenario.truth.asked)
    gates.refresh(scenario.rollout)
    assert len(scenario.truth.asked) == reads, "what was judged is not read again"
    assert signal_reason(scenario, engine_signals.GATE) == reason


def test_one_within_the_bound_does_not(running):
    scenario = running(gate_fall_percent=30)
    scenario.truth.effect = -0.2
    gates.refresh(scenario.rollout)
    assert (signal_reason(scenario, engine_signals.GATE), signal_reason(scenario, engine_signals.LOOK)) == (None, "")


@pytest.mark.parametrize("strategy", [{"gate_fall_percent": 10}, {"gate_throttled_points": 5}, {"gate_xids": True}])
def test_gpus_that_fell_silent_shut_the_gate_for_nobody_can_say_that_they_are_well(running, strategy):
    scenario = running(**strategy)
    scenario.truth.silent = {"n001", "n004"}
    gates.refresh(scenario.rollout)
    expected = "4 GPUs have no readings since their node's change: n001 and 1 more node."
    assert (signal_reason(scenario, engine_signals.GATE), signal_reason(scenario, engine_signals.LOOK)) == (
        expected,
        None,
    )


def test_gpus_of_which_nothing_was_known_before_do_not(running):
    scenario = running(gate_fall_percent=10)
    scenario.truth.silent = {"n001"}
    scenario.truth.changed_at["n001"] = now() - timedelta(days=2)
    gates.refresh(scenario.rollout)
    assert (signal_reason(scenario, engine_signals.GATE), signal_reason(scenario, engine_signals.LOOK)) == (None, "")


def test_more_throttling_shuts_the_gate(running):
    scenario = running(gate_throttled_points=5)
    scenario.truth.throttled = 60.0
    gates.refresh(scenario.rollout)
    assert (signal_reason(scenario, engine_signals.GATE) or "").startswith(
        "GPUs are throttled 20.0 % of the time more than before"
    )


def test_only_running_rollouts_with_gates_are_looked_at(running):
    scenario = running(gate_xids=True)
    assert gates.due() == [scenario.rollout.pk]
    Rollout.objects.update(status="paused")
    assert gates.due() == []
