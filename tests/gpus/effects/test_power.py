"""Effects that plans call detectable, against simulated rollouts of known truth and a verdict of other arithmetic."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bench import power as simulation
from bench.power import Design, SimulatedFleet
from gpus.effects import estimation, power
from gpus.effects.estimation import EffectVerdict, Pair
from gpus.effects.power import Member

SEEDS = 100
T_TABLE = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086,
           25: 2.060, 30: 2.042, 40: 2.021, 60: 2.000}  # fmt: skip
"""Two-sided 95 %, from a printed table."""


def linear_verdict(fleet: SimulatedFleet, effect: float) -> int:
    """Return 1, -1 or 0 by Taylor's linearization of the ratio and Welch's test, over nodes: no code of Setpoint's."""
    rows = fleet.rollout(effect)
    estimate, parts = 0.0, []
    for arm, sign in ((True, 1), (False, -1)):
        before: dict[int, float] = {}
        after: dict[int, float] = {}
        for node, was, became, is_treated in rows:
            if is_treated is arm:
                before[node] = before.get(node, 0) + was
                after[node] = after.get(node, 0) + became
        all_before, all_after, count = sum(before.values()), sum(after.values()), len(before)
        estimate += sign * math.log(all_after / all_before)
        squares = sum((after[node] / all_after - before[node] / all_before) ** 2 for node in before)
        parts.append((count / (count - 1) * squares, count - 1))
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / below for part, below in parts)
    critical = T_TABLE[max(n for n in T_TABLE if n <= max(4, freedom))]
    return (estimate > 0) - (estimate < 0) if abs(estimate) > critical * math.sqrt(variance) else 0


@pytest.mark.parametrize(
    ("design", "turnover"),
    [(Design(40, 10), 0.5), (Design(16, 8), 0.9), (Design(24, 6, hours=2), 0.25)],
)
def test_what_is_called_detectable_is_detected_in_four_of_five_rollouts(design, turnover):
    """Both arithmetics agree; and where nothing was changed, verdicts are as rare as promised."""
    fleets = [SimulatedFleet(5000 + seed, design, turnover) for seed in range(SEEDS)]
    effects = [simulation.forecast(fleet).rise for fleet in fleets]
    pairs = list(zip(fleets, effects, strict=True))
    ours = sum(simulation.verdict(fleet, effect) == EffectVerdict.ROSE for fleet, effect in pairs) / SEEDS
    theirs = sum(linear_verdict(fleet, effect) == 1 for fleet, effect in pairs) / SEEDS
    assert 0.72 <= ours <= 0.88
    assert 0.72 <= theirs <= 0.88
    false = sum(simulation.verdict(fleet, 0) != EffectVerdict.INCONCLUSIVE for fleet in fleets) / SEEDS
    assert false <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / SEEDS)


@pytest.mark.parametrize(("design", "turnover"), [(Design(40, 20), 0.0), (Design(40, 10), 0.1), (Design(16, 8), 0.5)])
def test_so_it_is_where_studies_are_adjusted_by_the_past(design, turnover):
    """The forecast is of the estimator that will be used; without turnover it is of much smaller effects."""
    fleets = [SimulatedFleet(7000 + seed, design, turnover) for seed in range(SEEDS)]
    expected = [simulation.forecast(fleet, has_past=True) for fleet in fleets]
    seen = [simulation.verdict(f, e.rise, has_past=True) for f, e in zip(fleets, expected, strict=True)]
    chance = math.sqrt(0.8 * 0.2 / SEEDS)
    assert abs(seen.count(EffectVerdict.ROSE) / SEEDS - 0.8) <= 3 * chance
    false = sum(simulation.verdict(f, 0, has_past=True) != EffectVerdict.INCONCLUSIVE for f in fleets) / SEEDS
    assert false <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / SEEDS)
    plain = [simulation.forecast(fleet) for fleet in fleets]
    assert all(e.narrower is not None and p.narrower is None for e, p in zip(expected, plain, strict=True))
    if not turnover:
        assert sum(e.rise for e in expected) < 0.85 * sum(p.rise for p in plain)


def known_fleet(seed: int, strata: int, nodes: int, *, known: float) -> list[list[Pair]]:
    """Placebos of nodes in strata, each with a drift of its own; the last is the study's, half of it changed first.

    `known`: how much of the drift the past knows.
    """
    rng = random.Random(seed)
    rows = [(f"s{s}", f"s{s}n{n}", n % 2 == 0, rng.uniform(0.3, 0.6)) for s in range(strata) for n in range(nodes)]
    drifts = [rng.gauss(0, 0.08) for _ in rows]
    return [
        [
            Pair(level * math.exp(rng.gauss(0, 0.02)), level * math.exp(own + rng.gauss(0, 0.02)), name, stratum,
                 is_treated or not is_study, past=level * math.exp(known * own + rng.gauss(0, 0.02)))
            for (stratum, name, is_treated, level), own in zip(rows, drifts, strict=True)
        ]
        for is_study in (False, False, False, False, True)
    ]  # fmt: skip


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize(("strata", "nodes"), [(1, 40), (5, 8), (10, 4)])
def test_however_many_kinds_of_gpu_the_forecast_is_as_narrow_as_the_study(strata, nodes, known):
    """The study has one weight for all of them, and pays for it once."""
    forecast, seen = [], []
    for seed in range(20):
        *placebos, study = known_fleet(seed, strata, nodes, known=known)
        members = [Member(pair.cluster, pair.stratum, pair.is_treated, 1) for pair in study]
        forecast.append(power.detectable(members, placebos).narrower)
        if adjustment := estimation.difference_in_differences(study).adjustment:
            seen.append(adjustment.narrower)
    assert len(seen) > 10
    assert sum(forecast) / len(forecast) == pytest.approx(sum(seen) / len(seen), abs=0.08)


def test_a_node_that_is_most_of_the_past_makes_no_forecast_smaller():
    """The study would not be adjusted by it."""
    *placebos, study = known_fleet(2, 1, 20, known=0)
    placebos, study = (
        [[replace(p, before=0.5, past=0.9 if p.cluster == "s0n0" else 0.5) for p in pairs] for pairs in of]
        for of in (placebos, [study])
    )
    members = [Member(pair.cluster, pair.stratum, pair.is_treated, 1) for pair in study[0]]
    assert estimation.difference_in_differences(study[0]).adjustment is None
    assert power.detectable(members, placebos).narrower is None


@pytest.mark.parametrize("turnover", [0.1, 0.9])
def test_what_changes_anyway_is_within_the_range_in_19_of_20_rollouts_without_effect(turnover):
    outside = 0
    for seed in range(SEEDS):
        fleet = SimulatedFleet(9000 + seed, Design(16, 8), turnover)
        usual = power.usual_change(simulation.placebos_of(fleet))
        rows = fleet.rollout(0)
        change = sum(row[2] for row in rows) / sum(row[1] for row in rows) - 1
        outside += not usual.low <= change <= usual.high
    assert 0 < outside / SEEDS <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / SEEDS)


def test_the_documented_table_is_the_simulations():
    """A cell of it with a fifth of the seeds, within what these leave to chance."""
    text = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| 15 + 5 |")
    ]
    assert len(rows) == 2
    column = 2 + simulation.TURNOVERS.index(0.25)
    detectable, seen = (float(row[column].strip("+ %")) / 100 for row in rows)
    tally = simulation.simulate(Design(20, 5), 0.25, seeds=60)
    assert tally.rises / tally.seeds == pytest.approx(detectable, rel=0.1)
    assert tally.tried / tally.seeds == pytest.approx(seen, abs=0.15)


def quiet(nodes: int, *, jobs: int = 0, treated: int | None = None) -> tuple[list[Member], list[Pair]]:
    """Members of two arms, and a placebo in which each node changed by something of its own."""
    of = [f"job {number % jobs}" if jobs else f"node {number}" for number in range(nodes)]
    members = [Member(name, "", number < (treated or nodes // 2), 2) for number, name in enumerate(of)]
    return members, [Pair(0.5, 0.5 + number % 7 / 100, name) for number, name in enumerate(of)]


def test_more_nodes_and_a_laxer_interval_detect_smaller_effects():
    few, many = quiet(20), quiet(80)
    assert power.detectable(many[0], [few[1]]).rise < power.detectable(few[0], [few[1]]).rise
    assert power.detectable(few[0], [few[1]], confidence=0.99).rise > power.detectable(few[0], [few[1]]).rise


def test_a_job_on_many_nodes_counts_as_one_and_nearly_alone():
    """A job on 35 of the 40 nodes of each arm leaves little more than one effective node in each."""
    members = [
        Member(f"big {arm}", "", arm, 70) if big else Member(f"{arm} {n}", "", arm, 2)
        for arm in (True, False)
        for big, n in [(True, 0), *((False, n) for n in range(5))]
    ]
    apart, placebo = quiet(80)
    assert power.detectable(members, [placebo]).rise > 4 * power.detectable(apart, [placebo]).rise


@pytest.mark.parametrize(
    ("members", "which"),
    [(quiet(40, treated=36)[0], "4 nodes or jobs are in the control group"), (quiet(8, treated=1)[0], "1 node or job")],
)
def test_arms_that_will_get_no_interval_detect_nothing(members, which):
    result = power.detectable(members, [quiet(20)[1]])
    assert (result.rise, result.fall) == (None, None)
    assert which in result.why


def test_without_pairs_nothing_is_computed():
    assert power.detectable(quiet(20)[0], [[]]).rise is None
    assert power.detectable(quiet(20)[0], []).why
    assert power.usual_change([quiet(20)[1]] * (power.FEWEST_PLACEBOS - 1)) is None


def test_a_stratum_without_history_takes_the_noise_of_the_others_and_small_ones_are_merged():
    members, placebo = quiet(40)
    twice = [Member(m.cluster, "new" if number % 2 else "", m.is_treated, 2) for number, m in enumerate(members)]
    assert power.detectable(twice, [placebo]).rise == pytest.approx(power.detectable(members, [placebo]).rise, rel=0.02)
    alone = [Member(m.cluster, str(number), m.is_treated, 2) for number, m in enumerate(members)]
    assert power.detectable(alone, [placebo]).clusters == 20


def test_the_usual_change_is_the_textbook_prediction_interval():
    """The one of 0.1, -0.1 and 0.2 is their mean ± t(2) · s · √(1 + 1/3)."""
    placebos = [[Pair(1, 1 + change, "a"), Pair(1, 1 + change, "b")] for change in (0.1, -0.1, 0.2)]
    usual = power.usual_change(placebos, by_points=True)
    half = 4.302653 * math.sqrt((0.1**2 + 0.1**2 + 0.2**2 - 0.2**2 / 3) / 2) * math.sqrt(4 / 3)
    assert (usual.low, usual.high) == (pytest.approx(0.2 / 3 - half, rel=1e-5), pytest.approx(0.2 / 3 + half, rel=1e-5))
