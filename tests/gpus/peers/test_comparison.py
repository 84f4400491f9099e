"""Nodes slower than their peers, from hours whose truth is known: those found, and those never accused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from statistics import median

import pytest

from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.peers import comparison
from gpus.peers.comparison import JOB, NAMESPACE, Day, Work
from tests.gpus.paced import Truth

AT = datetime(2026, 11, 20, tzinfo=UTC)


def paced(truth: Truth, hours: int = 6) -> dict[str, comparison.PeerComparison]:
    day = Day(truth.work_of)
    for back in range(hours, 0, -1):
        start = AT + timedelta(hours=24 - back)
        day.add(start, truth.hour(start, back))
    return {name: day.pace(name) for name in truth.names}


def slower(truth: Truth, hours: int = 6) -> set[str]:
    return {name for name, pace in paced(truth, hours).items() if pace.is_slower}


@pytest.mark.parametrize("nodes", [6, 12, 40])
def test_the_slow_are_found_and_by_what(nodes):
    truth = Truth(nodes)
    truth.slow["n0001"] = 0.8
    truth.waits["n0002"] = 0.6
    paces = paced(truth)
    assert {name for name, pace in paces.items() if pace.is_slower} == {"n0001", "n0002"}
    clock, wait = paces["n0001"], paces["n0002"]
    assert clock.worst
    assert clock.worst.gap == pytest.approx(-0.2, abs=0.04)
    assert {reading.signal for reading in clock.readings if reading.is_below} >= {"sm_clock", "ofu"}
    assert wait.worst
    assert {reading.signal for reading in wait.readings if reading.is_below} >= {"busy", "ofu"}
    # of n0002, which waits, the clock says nothing, so it is no peer there
    assert (clock.in_common, clock.work, clock.peers, clock.hours) == (JOB, "team/train", nodes - 2, 6)
    assert paces["n0000"].is_compared


@pytest.mark.parametrize(
    ("nodes", "spread", "most"), [(5, 0.02, 0.01), (5, 0.04, 0.03), (8, 0.02, 0.005), (40, 0.03, 0.005)]
)
def test_of_nodes_that_differ_by_chance_alone_few_are_accused(nodes, spread, most):
    """docs/gpu.md has the shares of a longer simulation."""
    runs = 400 // nodes
    accused = sum(len(slower(Truth(nodes, gpus=1, seed=seed, spread=spread), hours=3)) for seed in range(runs))
    assert accused <= most * runs * nodes


def test_a_little_slower_is_not_slower():
    truth = Truth(12, spread=0.001, noise=0.001)
    truth.slow["n0003"] = 0.96
    assert slower(truth) == set()
    truth.slow["n0003"] = 0.93
    assert slower(truth) == {"n0003"}


def test_another_job_is_no_slow_node():
    """Half the fleet trains, and half serves with a third of the work: each is held against its own kind."""
    truth = Truth(12)
    for name in truth.names[6:]:
        truth.work[name] = "team/serve"
        truth.waits[name] = 0.3
    assert slower(truth) == set()
    truth.waits["n0008"] = 0.15
    assert slower(truth) == {"n0008"}


def test_jobs_of_one_node_are_held_against_their_namespace_by_the_clock_alone():
    truth = Truth(8)
    for number, name in enumerate(truth.names):
        truth.work[name] = f"team/own{number}job"
    truth.waits["n0001"] = 0.85
    truth.slow["n0002"] = 0.7
    truth.slow["n0003"], truth.watts["n0003"] = 0.7, 690.0
    truth.watts["n0002"] = 500.0
    paces = paced(truth)
    assert {name for name, pace in paces.items() if pace.is_slower} == {"n0002"}  # n0003 draws more: a heavier job
    assert (paces["n0002"].in_common, paces["n0002"].work) == (NAMESPACE, "team")


@pytest.mark.parametrize(
    ("change", "compared"),
    [
        (lambda truth: truth.idle.add("n0000"), False),
        (lambda truth: truth.hours_of.update(n0000=2), False),
        (lambda truth: truth.hours_of.update(n0000=3), True),
        (lambda truth: truth.work.update(n0000="lab/alone"), False),
        (lambda truth: truth.idle.update(truth.names[4:]), False),
        (lambda truth: truth.idle.update(truth.names[5:]), True),
    ],
    ids=["idle", "two hours", "three hours", "alone at its work", "three peers", "four peers"],
)
def test_with_too_little_to_compare_nothing_is_said(change, compared):
    truth = Truth(8)
    truth.slow["n0000"] = 0.5
    change(truth)
    pace = paced(truth)["n0000"]
    assert (pace.is_compared, pace.is_slower) == (compared, compared)


def test_idle_hours_are_never_slow():
    truth = Truth(8)
    truth.idle.update({"n0001", "n0002"})
    assert slower(truth) == set()


def test_hours_of_several_holders_of_parts_and_of_little_telemetry_do_not_count():
    means = {Metric.BUSY: 0.9, Metric.TENSOR: 0.4, Metric.SM_CLOCK: 1.8e9}
    good = Bucket(AT, 1.0, 1.0, means, "team/a-0")
    assert comparison.figures(good, "") == {"busy": 0.9, "tensor": 0.4, "sm_clock": 1800.0}
    for bad in (
        Bucket(AT, 1.0, 1.0, means, ""),
        Bucket(AT, 0.4, 1.0, means, "team/a-0"),
        Bucket(AT, 1.0, 1.0, {Metric.TENSOR: 0.4}, "team/a-0"),
    ):
        assert comparison.figures(bad, "") is None
    day = Day()
    day.add(AT, [(Device(f"GPU-{n}", "3", f"n{n}", "H100"), good) for n in range(8)])
    assert not day.at_work


def test_figures_that_nobody_has_or_that_are_zero_break_nothing():
    day = Day(lambda *_pod: Work("a", "team/a", is_in_step=True))
    for hour in range(3):
        start = AT + timedelta(hours=hour)
        zero = Bucket(start, 1.0, 1.0, {Metric.BUSY: 0.9, Metric.TENSOR: 0.0, Metric.SM_CLOCK: 0.0}, "team/a-0")
        day.add(start, [(Device(f"GPU-{n}", "", f"n{n}", "Something New"), zero) for n in range(6)])
    pace = day.pace("n0")
    assert (pace.is_compared, pace.is_slower) == (True, False)
    assert [reading.signal for reading in pace.readings] == ["busy"]
    assert Day().pace("nobody") == comparison.PeerComparison(is_compared=False)


def test_every_number_can_be_computed_by_hand_from_the_hours():
    """The definition of docs/gpu.md, written once more without the code that is tested."""
    truth = Truth(9, gpus=3, spread=0.03)
    truth.slow["n0004"] = 0.85
    hours = [list(truth.hour(AT + timedelta(hours=n))) for n in range(4)]
    day = Day(truth.work_of)
    for number, rows in enumerate(hours):
        day.add(AT + timedelta(hours=number), rows)
    reading = next(reading for reading in day.pace("n0004").readings if reading.signal == "sm_clock")
    gaps, bounds = [], []
    for rows in hours:
        clocks: dict[str, list[float]] = {}
        for device, bucket in rows:
            clocks.setdefault(device.node_name, []).append(bucket.means[Metric.SM_CLOCK] / 1e6)
        nodes = {name: sum(own) / len(own) for name, own in clocks.items()}
        usual = median(nodes.values())
        deviation = median(abs(value - usual) for value in nodes.values())
        gaps.append(nodes["n0004"] / usual - 1)
        bounds.append(-max(0.05, 4 * 1.4826 * 1.107 * deviation / usual))
    assert reading.gap == pytest.approx(median(gaps))
    assert reading.bound == pytest.approx(median(bounds))
