"""A node's time in steps of five minutes: no reading counts twice, and states sum to the capacity."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpus.metrics.buckets import Bucket
from gpus.metrics.samples import DeviceKey, Holder, Metric, Sample
from gpus.storage import accumulator, codec
from gpus.storage.accumulator import (
    COARSE,
    FINE,
    ClosedFine,
    ClosedHour,
    NodeBands,
    NodeState,
    OpenDevice,
    OpenNode,
    fold,
    instant,
)

GPUS = 8
NOON = 1_700_000_000 // COARSE * COARSE
"""An hour's beginning."""
STATES = st.lists(st.integers(0, 6), min_size=GPUS, max_size=GPUS).map(
    lambda drawn: tuple(float(Counter(drawn)[index]) for index in range(7))
)
LOOKS = st.lists(
    st.tuples(
        st.one_of(st.floats(0.5, 100), st.floats(100, 700), st.floats(700, 9000)), STATES, st.booleans(), st.booleans()
    ),
    min_size=2,
    max_size=40,
)
"""(seconds since the look before, states, telemetry answered, given twice)"""


def sample(uuid="GPU-1", pod="a", **values):
    holders = (Holder("team", pod),) if pod else ()
    values = {Metric(name): value for name, value in values.items()}
    return Sample(DeviceKey(uuid), "n1", "0", "H100", "", "", holders, values)


def node_state(bands=(0,) * 6 + (8,), *samples):
    blind = NodeBands((0.0,) * 6 + (float(GPUS),), {})
    return NodeState(NodeBands(bands, {"team": bands[:4]}), blind, samples, {"GPU-1": [("team", 1.0)]})


def feed(readings):
    """[(seconds, sample)] from noon on. Returns the node and what it closed."""
    node, closed = OpenNode(NOON), []
    for at, reading in readings:
        closed += accumulator.advance(node, "n1", node_state((0, 0, 0, 0, 0, 0, 8), reading), NOON + at)
    return node, [period for period in closed if isinstance(period, ClosedFine)]


def whole(node, closed):
    """GPU-seconds and recorded seconds of all that was accounted, open or over."""
    parts = [period.amounts for period in closed if isinstance(period, ClosedFine)] + [node.fine]
    return [sum(amounts) for amounts in zip(*(part.states for part in parts), strict=True)], sum(
        part.recorded for part in parts
    )


@settings(max_examples=60)
@given(LOOKS)
def test_states_sum_to_the_capacity_and_no_time_counts_twice(looks):
    node, at, closed = OpenNode(NOON), float(NOON), []
    recorded = covered = 0.0
    accounted = at
    for passed, bands, answered, twice in looks:
        at += passed
        gap = at - accounted
        if answered or gap > accumulator.COVERS_SECONDS:
            recorded += min(gap, accumulator.LOOKED_SECONDS)
            covered += min(gap, accumulator.COVERS_SECONDS) if answered else 0.0
            accounted = at
        node = OpenNode.unpacked(codec.unzipped(codec.zipped(node.packed(), 1)))  # a restart at every reading
        for _ in range(1 + twice):
            if answered:
                closed += accumulator.advance(node, "n1", node_state(bands, sample(busy=0.5)), at)
            else:
                closed += accumulator.lose(node, "n1", node_state().blind, at)
    spent, seconds = whole(node, closed)
    assert math.isclose(seconds, recorded, abs_tol=1e-3)
    assert math.isclose(sum(spent), GPUS * recorded, abs_tol=1e-2)
    fives = [period for period in closed if isinstance(period, ClosedFine)]
    held = sum(five.devices[0][1].covered * FINE for five in fives if five.devices)
    assert math.isclose(held + node.devices["GPU-1", ""].covered if node.devices else held, covered, abs_tol=1e-2)
    for five in fives:
        assert math.isclose(sum(five.amounts.states), GPUS * five.amounts.recorded, abs_tol=1e-3)
        assert five.start % FINE == 0
        assert five.amounts.recorded <= FINE + 1e-6
    hours = [period for period in closed if isinstance(period, ClosedHour)]
    in_hours = sum(hour.amounts.recorded for hour in hours) + node.hour.recorded
    assert math.isclose(in_hours, sum(five.amounts.recorded for five in fives), abs_tol=1e-3)
    starts = [five.start for five in fives]
    assert starts == sorted(set(starts))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(1, 170), st.floats(0, 90_000)), min_size=1, max_size=30))
def test_energy_is_what_the_counter_rose_by(steps):
    readings, at, joules = [(0.0, sample(energy=1e6))], 0.0, 1e6
    for seconds, more in steps:
        at, joules = at + seconds, joules + min(more, seconds * 1000)
        readings.append((at, sample(energy=joules)))
    node = OpenNode(NOON - 10.0)
    closed = [
        period
        for at, what in readings
        for period in accumulator.advance(node, "n1", node_state(node_state().seen.bands, what), NOON + at)
        if isinstance(period, ClosedFine)
    ]
    assert math.isclose(sum(period.amounts.joules for period in closed) + node.fine.joules, joules - 1e6, abs_tol=1)
    paid = sum(period.payers["team"].joules for period in closed) + node.payers.get("team", node.fine).joules
    assert math.isclose(paid, joules - 1e6, abs_tol=1)


def test_a_late_reading_changes_nothing():
    node, _ = feed([(30, sample(busy=0.5)), (60, sample(busy=0.5))])
    before = node.packed()
    for at in (60, 45, 30):
        assert not list(accumulator.advance(node, "n1", node_state((8,) + (0,) * 6, sample(busy=1)), NOON + at))
    assert node.packed() == before


def test_a_reading_across_two_steps_is_divided_at_the_boundary():
    node, (first,) = feed([(270, sample(busy=0.2)), (330, sample(busy=0.8))])
    ((device, bucket),) = first.devices
    assert device == ("GPU-1", "", "n1", "H100")
    assert bucket.start == instant(NOON)
    assert bucket.covered == pytest.approx((180 + 30) / 300)
    assert bucket.means[Metric.BUSY] == pytest.approx((0.2 * 180 + 0.8 * 30) / 210)
    assert node.devices["GPU-1", ""].covered == 30


def test_what_is_beyond_a_readings_reach_is_not_covered_and_unknown():
    node, _ = feed([(30, sample(busy=0.5))])
    closed = list(accumulator.advance(node, "n1", node_state((8,) + (0,) * 6, sample(busy=1)), NOON + 30 + 400))
    (first,) = closed
    assert first.amounts.recorded == 300
    assert first.amounts.states[0] == 8 * (300 - 250)
    assert first.amounts.states[6] == 8 * 250
    assert first.devices[0][1].covered == pytest.approx((30 + 50) / 300)


def test_time_in_which_nobody_looked_is_not_recorded():
    node, _ = feed([(30, sample(busy=0.5))])
    closed = list(
        accumulator.advance(node, "n1", node_state(node_state().seen.bands, sample(busy=1)), NOON + 30 + 7 * 86400)
    )
    assert (
        sum(period.amounts.recorded for period in closed if isinstance(period, ClosedFine)) + node.fine.recorded == 630
    )


def test_telemetry_lost_for_less_than_a_readings_reach_is_not_lost_yet():
    node, _ = feed([(30, sample(busy=0.5))])
    assert not list(accumulator.lose(node, "n1", node_state().blind, NOON + 90))
    assert node.until == NOON + 30


def test_a_counter_that_starts_anew_counts_from_zero():
    readings = [(0.001, 500), (100, 900), (200, 40), (300, 100)]
    _, (first,) = feed([(at, sample(pcie_replays=count, busy=0.5)) for at, count in readings])
    assert first.devices[0][1].means[Metric.PCIE_REPLAYS] == pytest.approx(400 + 40 + 60)


def test_of_an_increase_over_a_gap_the_covered_part_counts():
    node, _ = feed([(10, sample(pcie_replays=0)), (10 + 360, sample(pcie_replays=360))])
    (closed,) = accumulator.advance(
        node, "n1", node_state(node_state().seen.bands, sample(pcie_replays=360)), NOON + 600
    )
    assert closed.devices[0][1].means[Metric.PCIE_REPLAYS] == pytest.approx(70)  # of the 180 before 12:06:10


def test_energy_without_a_counter_is_power_times_time_and_nonsense_is_not_believed():
    node, _ = feed([(at, sample(power=400)) for at in (60, 120)])
    assert node.fine.joules == 400 * 120
    node, _ = feed([(60, sample(power=400, energy=1)), (120, sample(power=400, energy=1e15))])
    assert node.fine.joules == 400 * 120


def test_absent_is_never_zero():
    _, (first,) = feed([(100, sample(busy=0.5)), (200, sample()), (300, sample(sm=0.4))])
    assert first.devices[0][1].means == pytest.approx({Metric.BUSY: 0.5, Metric.SM: 0.4})


@pytest.mark.parametrize(
    ("pods", "held", "holder"), [("aaa", 1, "team/a"), ("aab", 1, ""), (("a", None, "a"), 2 / 3, "")]
)
def test_a_holder_stands_where_it_was_one_throughout(pods, held, holder):
    _, (first,) = feed([(100 * index + 100, sample(pod=pod, busy=1)) for index, pod in enumerate(pods)])
    bucket = first.devices[0][1]
    assert (bucket.held, bucket.holder) == (pytest.approx(held), holder)


def test_an_hour_weighs_its_fives_by_what_covers_them():
    noon = instant(NOON)
    fives = [
        Bucket(noon, 1.0, 1.0, {Metric.BUSY: 0.9, Metric.PCIE_REPLAYS: 3}, "team/a"),
        Bucket(noon, 0.5, 0.0, {Metric.BUSY: 0.3, Metric.PCIE_REPLAYS: 4}, ""),
        Bucket(noon, 0.5, 1.0, {}, "team/a"),
    ]
    hour = fold(fives, noon)
    assert hour.covered == pytest.approx(2 / 12)
    assert hour.held == pytest.approx(0.75)
    assert hour.means == pytest.approx({Metric.BUSY: 0.7, Metric.PCIE_REPLAYS: 7})
    assert hour.holder == ""


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=2), st.floats(0, 1), st.floats(0, 1e12)), max_size=8))
def test_what_is_packed_comes_back(rows):
    buckets = {
        accumulator.Device(uuid, "", f"n{uuid}", "H100"): Bucket(instant(NOON), 1.0, share, {Metric.ENERGY: joules}, "")
        for uuid, share, joules in rows
    }
    back = dict(codec.unpack(codec.pack(buckets.items()), instant(NOON)))
    assert back.keys() == buckets.keys()
    for device, bucket in back.items():
        assert bucket.held == pytest.approx(buckets[device].held, rel=1e-5)
        assert bucket.means == pytest.approx(buckets[device].means, rel=1e-5)


def test_an_open_step_of_another_version_loses_only_the_metrics_that_this_one_does_not_know():
    open_device = OpenDevice("H100", "", covered=FINE, sums={"busy": 0.5 * FINE, "gone": 1.0})
    open_device.counted = {"nvlink_errors": 3.0, "pcie_replays": 2.0}
    bucket = open_device.bucket(instant(NOON))
    assert bucket is not None
    assert bucket.means == {Metric.BUSY: 0.5, Metric.PCIE_REPLAYS: 2.0}
