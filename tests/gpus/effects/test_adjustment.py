"""Adjustment by the past against known truth: coverage, width, invariance, and nodes without a past."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import designs
from bench.designs import Fleet
from gpus.effects import estimation
from gpus.effects.estimation import FEWEST_CLUSTERS, Effect, Pair

SEEDS = 150


def pairs_of(seed: int, *, nodes: int = 40, effect: float = 0.0, known: float = 1.0, without: int = 0) -> list[Pair]:
    """Two GPUs a node; `known`: how much of what it does anyway its past knows; the first `without` have no past."""
    rng = random.Random(seed)
    arms = rng.sample([True, False] * (nodes // 2), nodes)
    pairs = []
    for node, is_treated in enumerate(arms):
        level, own = rng.uniform(0.3, 0.6), rng.gauss(0, 0.08)
        for _ in range(2):
            before = level * math.exp(rng.gauss(0, 0.02))
            past = None if node < without else level * math.exp(known * own + rng.gauss(0, 0.02))
            after = level * math.exp(own + rng.gauss(0, 0.02)) * (1 + effect * is_treated)
            pairs.append(Pair(before, after, f"node {node}", f"kind {node % 2}", is_treated, past=past))
    return pairs


def judged(pairs: list[Pair], *, by_points: bool = False) -> Effect:
    return estimation.difference_in_differences(pairs, by_points=by_points)


def width(effect: Effect) -> float:
    assert effect.ratio_interval
    return effect.ratio_interval.high - effect.ratio_interval.low


@pytest.mark.parametrize("nodes", [12, 24])
@pytest.mark.parametrize(("known", "without"), [(1.0, 0), (0.0, 0), (1.0, 4)])
def test_the_adjusted_interval_holds_the_truth_in_19_of_20_whatever_the_past_tells(nodes, known, without):
    """Few nodes and many; and the mean estimate is the truth."""
    covered, adjusted = 0, 0
    estimates: list[float] = []
    for seed in range(SEEDS):
        effect = judged(pairs_of(seed, nodes=nodes, effect=0.05, known=known, without=without if nodes > 12 else 0))
        adjusted += effect.adjustment is not None
        assert effect.ratio_interval
        covered += effect.ratio_interval.low <= 0.05 <= effect.ratio_interval.high
        estimates.append(effect.ratio or 0.0)
    assert adjusted / SEEDS > 0.5
    chance = 2 * math.sqrt(0.05 * 0.95 / SEEDS)
    assert 0.95 - chance <= covered / SEEDS
    assert mean(estimates) == pytest.approx(0.05, abs=3 * stdev(estimates) / math.sqrt(SEEDS))


def test_a_past_that_tells_what_a_node_does_anyway_makes_the_interval_narrower():
    effect = judged(pairs_of(1, effect=0.05))
    plain = judged([replace(pair, past=None) for pair in pairs_of(1, effect=0.05)])
    assert effect.adjustment
    assert plain.adjustment is None
    assert effect.adjustment.unadjusted == plain.ratio
    assert effect.adjustment.weight == pytest.approx(1, abs=0.15)
    assert width(effect) < 0.6 * width(plain)
    logs = [math.log1p(e.ratio_interval.high) - math.log1p(e.ratio_interval.low) for e in (effect, plain)]
    assert effect.adjustment.narrower == pytest.approx(1 - logs[0] / logs[1])


@pytest.mark.parametrize("by_points", [False, True])
def test_a_past_that_tells_nothing_gets_hardly_any_weight(by_points):
    rng, weights = random.Random(1), []
    for seed in range(30):
        pairs = [replace(p, past=p.before * math.exp(rng.gauss(0, 0.1))) for p in pairs_of(seed)]
        weights.append(judged(pairs, by_points=by_points).adjustment.weight)
    assert abs(mean(weights)) < 0.1


@given(seed=st.integers(0, 10**6), by=st.floats(0.1, 1000), rotated=st.integers(1, 79))
@settings(max_examples=30, deadline=None)
def test_units_order_and_names_of_nodes_change_nothing(seed, by, rotated):
    pairs = pairs_of(seed)
    plain = judged(pairs)
    other = [
        replace(p, before=p.before * by, after=p.after * by, past=p.past and p.past * by, cluster=f"{p.cluster}, moved")
        for p in [*pairs[rotated:], *pairs[:rotated]]
    ]
    moved = judged(other)
    assert moved.verdict == plain.verdict
    assert moved.ratio == pytest.approx(plain.ratio, rel=1e-6, abs=1e-9)
    assert width(moved) == pytest.approx(width(plain), rel=1e-6)
    assert moved.adjustment.weight == pytest.approx(plain.adjustment.weight, rel=1e-6, abs=1e-6)


@given(seed=st.integers(0, 10**6), more=st.floats(0, 5), shared=st.floats(0, 5))
@settings(max_examples=30, deadline=None)
def test_what_is_added_to_every_node_changes_no_points(seed, more, shared):
    """`shared` happened to all of them after the change alone; `more` was there all the time."""
    pairs = pairs_of(seed)
    plain = judged(pairs, by_points=True)
    moved = judged(
        [replace(p, before=p.before + more, after=p.after + more + shared, past=p.past + more) for p in pairs],
        by_points=True,
    )
    assert moved.points == pytest.approx(plain.points, abs=1e-7)
    assert moved.points_interval.low == pytest.approx(plain.points_interval.low, abs=1e-7)
    assert moved.adjustment.weight == pytest.approx(plain.adjustment.weight, abs=1e-5)


@given(seed=st.integers(0, 10**6), effect=st.floats(-0.5, 1))
@settings(max_examples=30, deadline=None)
def test_an_effect_moves_the_interval_by_as_much_and_no_more(seed, effect):
    plain, changed = judged(pairs_of(seed)), judged(pairs_of(seed, effect=effect))
    assert 1 + changed.ratio_interval.low == pytest.approx((1 + plain.ratio_interval.low) * (1 + effect), rel=1e-9)


def test_nodes_without_a_past_stay_in_the_comparison():
    """Dropped, they would be gone from the arms that chance chose: here they alone have an effect."""
    pairs = pairs_of(3, without=14)
    changed = [replace(p, after=p.after * 3) if p.is_treated and p.past is None else p for p in pairs]
    plain, effect = judged(pairs), judged(changed)
    assert (effect.devices + effect.control_devices, effect.clusters + effect.control_clusters) == (80, 40)
    assert effect.adjustment.clusters + effect.adjustment.control_clusters == 26
    assert effect.ratio > plain.ratio + 0.3


@pytest.mark.parametrize("with_past", [0, FEWEST_CLUSTERS - 1])
def test_too_few_pasts_in_an_arm_adjust_nothing(with_past):
    pairs = pairs_of(5)
    treated = sorted({p.cluster for p in pairs if p.is_treated})[:with_past]
    few = [replace(p, past=p.past if not p.is_treated or p.cluster in treated else None) for p in pairs]
    effect, plain = judged(few), judged([replace(p, past=None) for p in pairs])
    assert effect.adjustment is None
    assert (effect.ratio, effect.ratio_interval) == (plain.ratio, plain.ratio_interval)


@pytest.mark.parametrize("past", [0.0, 0.5])
def test_a_past_that_is_the_same_everywhere_is_no_reason_to_fail(past):
    pairs = [replace(p, before=0.5, past=past) for p in pairs_of(7)]
    plain = judged([replace(p, past=None) for p in pairs])
    assert (judged(pairs).ratio, judged(pairs).verdict) == (plain.ratio, plain.verdict)


def test_one_node_that_is_most_of_the_past_decides_nothing():
    """Weighted by that node, the adjustment would explain away all that happened to it."""
    for seed in range(20):
        pairs = [replace(p, before=0.5, past=0.9 if p.cluster == "node 0" else 0.5) for p in pairs_of(seed)]
        effect, plain = judged(pairs), judged([replace(p, past=None) for p in pairs])
        assert effect.adjustment is None
        assert (effect.ratio, effect.ratio_interval) == (plain.ratio, plain.ratio_interval)


def moved(pairs: list[Pair]) -> tuple[bool, bool, bool]:
    """Return whether the past moves the ratio, and the points, and whether an adjustment is shown."""
    effect, plain = judged(pairs), judged([replace(pair, past=None) for pair in pairs])
    return effect.ratio != plain.ratio, effect.points != plain.points, effect.adjustment is not None


def test_ratio_and_points_are_adjusted_together_or_not_at_all():
    """Few nodes whose levels differ much: a node may have most of the past's variance in points, not of the ratio."""
    outcomes = set()
    for seed in range(100):
        rng, pairs = random.Random(seed), []
        for node in range(12):
            level, own = rng.uniform(0.05, 0.9), rng.gauss(0, 0.15)
            past = level * math.exp(own + rng.gauss(0, 0.05))
            pairs.append(Pair(level, level * math.exp(own), f"n{node}", "", node % 2 == 0, past=past))
        outcomes.add(moved(pairs))
    assert outcomes == {(True, True, True), (False, False, False)}


def test_a_past_of_nothing_moves_neither():
    """A sum of 0 has no ratio, but points."""
    rng = random.Random(1)
    pairs = [replace(p, before=p.before * rng.uniform(0.5, 1.5), past=0.0) for p in pairs_of(7)]
    assert moved(pairs) == (False, False, False)


def test_before_and_after_alone_is_not_adjusted():
    assert estimation.before_and_after(pairs_of(1)).adjustment is None


# ── the designs of the simulation ─────────────────────────────────────────────────────────────────────────────────────


DOCS = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")
TABLES = [[cell.strip() for cell in line.split("|")[1:-1]] for line in DOCS.splitlines()]


@pytest.mark.parametrize("turnover", designs.TURNOVERS)
def test_the_documented_designs_are_the_simulations(turnover):
    """Columns of both tables with a fifth of the seeds, within what these leave to chance."""
    column = designs.TURNOVERS.index(turnover)
    tallies = designs.simulate(designs.DESIGNS, turnover, seeds=60)
    for design, tally in zip(designs.DESIGNS, tallies, strict=True):
        widths, powers = (row for row in TABLES if row and row[0] == design.title)
        assert widths[1] == f"{designs.NODES * design.span:,}"
        assert tally.half == pytest.approx(float(widths[2 + column].split()[0].strip("±")) / 100, rel=0.15)
        of_five = float(powers[1 + column].split(" / ")[1]) / 100
        assert tally.seen[0.05] / tally.seeds == pytest.approx(of_five, abs=0.2)


def test_the_documented_share_of_false_verdicts_is_that_of_the_table():
    """Cells are rounded to whole percents."""
    cells = [
        int(cell.split("(")[1].split()[0])
        for row in TABLES
        if row and re.fullmatch("Two arms, .* adjusted by the past", row[0]) and "(" in row[2]
        for cell in row[2:]
    ]
    sentence = r"Of ([\d,]+) simulated rollouts without effect \(two arms .*?\) \d+, or ([\d.]+) %"
    count, share = re.findall(sentence, DOCS)[0]
    assert int(count.replace(",", "")) == len(cells) * designs.SEEDS
    assert float(share) == pytest.approx(mean(cells), abs=0.2)


def test_the_advice_on_windows_is_that_of_the_adjusted_rows():
    """A forecast's page advises more hours only where jobs hardly ever change, and so does the table."""
    widths = {
        hours: [float(cell.strip("±").split()[0]) for cell in row[2:]]
        for hours in (3, 6, 24)
        for row in TABLES
        if row and row[0] == f"Two arms, windows of {hours} h, adjusted by the past" and "±" in row[2]
    }
    assert [long < usual for usual, long in zip(widths[6], widths[24], strict=True)] == [True, False, False, False]
    narrower = [round(100 * (1 - short / usual)) for usual, short in zip(widths[6], widths[3], strict=True)]
    assert narrower == [0, 7, 16, 16]
    page = (Path(__file__).parents[3] / "templates" / "gpus" / "_forecast.html").read_text(encoding="utf-8")
    assert "of more only where they hardly ever change" in " ".join(page.split())


def test_jobs_whose_nodes_wait_for_each_other_hide_an_effect_unless_drawn_whole():
    by_draw = {row[0]: row for row in designs.jobs_of_several_nodes(seeds=20).rows}
    assert float(str(by_draw["Nodes by lot"][3]).split()[0]) < 4
    assert float(str(by_draw["Half of each job's nodes"][3]).split()[0]) < 1
    assert float(str(by_draw["Whole jobs"][3]).split()[0]) > 5


def test_the_simulated_past_is_of_the_days_with_the_same_job():
    fleet = Fleet(3, 0.25)
    began = designs.START + designs.GAP
    for node in range(designs.NODES):
        job = fleet.jobs[node][designs.START - 1]
        days = [d for d in range(1, 8) if {fleet.jobs[node][began - 24 * d + h] for h in (0, 5)} == {job}]
        expected = [fleet.mean(node, began - 24 * day, 6) for day in days]
        assert fleet.past(node, 6) == (pytest.approx(sum(expected) / len(expected)) if expected else None)
    assert any(fleet.past(node, 6) is None for node in range(designs.NODES))
    pairs = [fleet.pair(node, 6, is_treated=node % 2 == 0, has_past=True) for node in range(designs.NODES)]
    adjustment = judged(pairs).adjustment
    assert adjustment
    with_past = sum(fleet.past(node, 6) is not None for node in range(designs.NODES))
    assert adjustment.clusters + adjustment.control_clusters == with_past
    assert judged([fleet.pair(n, 6, is_treated=n % 2 == 0) for n in range(designs.NODES)]).adjustment is None
