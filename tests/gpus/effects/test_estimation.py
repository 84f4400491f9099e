"""The statistics against known truth: a simulated fleet, every seed fixed."""

import math
import random
from collections.abc import Iterable

import pytest

from gpus.effects import estimation, student
from gpus.effects.estimation import FEWEST_CLUSTERS, EffectVerdict, Pair

SEEDS = 100


def fleet(seed: int, *, effect: float, nodes: int = 80, gpus: int = 8) -> list[Pair]:
    """Two models, half of each treated. All rise by 5 % meanwhile, as when a working day begins; each node goes its
    own way by 5 %, and its GPUs with it; each GPU by another 5 %."""
    rng = random.Random(seed)
    pairs = []
    for number in range(nodes):
        is_treated = number // 2 % 2 == 0
        level = rng.uniform(0.35, 0.85)
        own = 1.05 * math.exp(rng.gauss(0, 0.05)) * (1 + effect if is_treated else 1)
        for _ in range(gpus):
            before = level * math.exp(rng.gauss(0, 0.1))
            after = before * own * math.exp(rng.gauss(0, 0.05))
            pairs.append(Pair(before, after, f"node-{number}", f"model-{number % 2}", is_treated))
    return pairs


def test_an_effect_of_8_percent_is_covered_and_seen():
    hits = 0
    for seed in range(SEEDS):
        estimate = estimation.difference_in_differences(fleet(seed, effect=0.08))
        assert estimate.ratio_interval
        hits += (
            estimate.ratio_interval.low <= 0.08 <= estimate.ratio_interval.high
            and estimate.verdict == EffectVerdict.ROSE
        )
    assert hits >= 90


def test_no_effect_is_called_inconclusive():
    verdicts = [estimation.difference_in_differences(fleet(1000 + s, effect=0)).verdict for s in range(SEEDS)]
    assert verdicts.count(EffectVerdict.INCONCLUSIVE) >= 90


def test_before_and_after_alone_takes_the_working_day_for_the_change():
    """The change does nothing, and all are higher afterwards: so it is called that, and is no verdict."""
    verdicts = [estimation.before_and_after(fleet(s, effect=0)).verdict for s in range(10)]
    assert set(verdicts) == {EffectVerdict.HIGHER}
    assert estimation.before_and_after(fleet(0, effect=-0.3)).verdict == EffectVerdict.LOWER


def test_measures_beside_the_primary_one_are_together_as_rarely_wrong_as_it():
    """Five of them that nothing changed, in 200 rollouts: at least one called changed in 5 %, and what chance adds."""
    strict, loose = 0, 0
    for seed in range(200):
        measures = [fleet(seed * 10 + number, effect=0, nodes=24, gpus=2) for number in range(5)]
        for confidence in (0.95, 0.99):
            verdicts = {
                estimation.difference_in_differences(measure, confidence=confidence).verdict for measure in measures
            }
            is_wrong = bool(verdicts & {EffectVerdict.ROSE, EffectVerdict.FELL})
            strict, loose = strict + (is_wrong and confidence == 0.99), loose + (is_wrong and confidence == 0.95)
    assert strict / 200 <= 0.09
    assert loose / 200 > 0.12, "it is worth it"


def test_a_look_before_the_end_gives_the_direction_alone():
    estimate = estimation.difference_in_differences(fleet(1, effect=0.3))
    assert estimate.verdict == EffectVerdict.ROSE
    interim = estimation.without_verdict(estimate, by_points=False)
    assert (interim.verdict, interim.ratio_interval) == (EffectVerdict.HIGHER, estimate.ratio_interval)


@pytest.mark.parametrize("before", [0, 0.0001])
@pytest.mark.parametrize("by_points", [True, False])
def test_what_is_shown_as_zero_before_and_after_is_no_change(by_points, before):
    pairs = [Pair(before, 3 * before, f"{arm}{n}", is_treated=arm) for n in range(8) for arm in (True, False)]
    pairs[0] = Pair(before, 6 * before, "True0", is_treated=True)
    for judge in (estimation.before_and_after, estimation.difference_in_differences):
        effect = judge(pairs, by_points=by_points)
        assert effect.verdict == EffectVerdict.SAME
        assert estimation.without_verdict(effect, by_points=by_points).verdict == EffectVerdict.SAME
    shown = [Pair(p.before, p.after + 0.01 * p.is_treated, p.cluster, "", p.is_treated) for p in pairs]
    assert estimation.difference_in_differences(shown, by_points=True).verdict == EffectVerdict.ROSE


@pytest.mark.parametrize("nodes", [12, 20])
def test_the_interval_holds_what_it_promises_with_few_nodes(nodes):
    """95 % of 400, within what chance leaves (±2.2 %)."""
    covered = 0
    for seed in range(400):
        interval = estimation.difference_in_differences(
            [Pair(p.before, p.after, p.cluster, "", p.is_treated) for p in fleet(seed, effect=0, nodes=nodes, gpus=2)]
        ).ratio_interval
        covered += interval is not None and interval.holds_zero
    assert covered / 400 >= 0.928


def test_gpus_of_a_node_do_not_count_as_many_proofs():
    pairs = fleet(3, effect=0.08, nodes=16)
    by_node = estimation.difference_in_differences(pairs).ratio_interval
    each = [Pair(p.before, p.after, str(i), p.stratum, p.is_treated) for i, p in enumerate(pairs)]
    one_by_one = estimation.difference_in_differences(each).ratio_interval
    assert by_node
    assert one_by_one
    assert by_node.high - by_node.low > 1.5 * (one_by_one.high - one_by_one.low)


def test_the_figures_of_a_case_worked_by_hand():
    """Treated 10 -> 12 and 20 -> 22; control 10 -> 11: without the change 30 would have become 33."""
    pairs = [Pair(10, 12, "a"), Pair(20, 22, "b"), Pair(10, 11, "c", is_treated=False)]
    estimate = estimation.difference_in_differences(pairs)
    assert estimate.ratio == pytest.approx(34 / 33 - 1)
    assert (estimate.points, estimate.before, estimate.after, estimate.expected) == (1, 15, 17, 16)
    assert (estimate.devices, estimate.clusters, estimate.control_devices, estimate.control_clusters) == (2, 2, 1, 1)
    assert estimate.verdict == EffectVerdict.NO_INTERVAL
    alone = estimation.before_and_after(pairs)
    assert alone.ratio == pytest.approx(34 / 30 - 1)
    assert (alone.points, alone.control_devices) == (2, 0)


def test_of_two_equal_clusters_the_jackknife_is_the_textbook_interval():
    """Five nodes, one GPU each: mean difference ± t(4) · s/√5."""
    differences = [0.02, 0.05, 0.01, 0.04, 0.08]
    estimate = estimation.before_and_after(Pair(0.5, 0.5 + d, str(d)) for d in differences)
    mean = sum(differences) / 5
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / 4)
    assert estimate.points == pytest.approx(mean)
    assert estimate.points_interval
    assert estimate.points_interval.high - mean == pytest.approx(2.776445 * deviation / math.sqrt(5), rel=1e-5)


def nodes_of(count: int, is_treated: bool = True, stratum: str = "") -> Iterable[Pair]:
    for number in range(count):
        yield Pair(0.5, 0.5 + number / 100, f"{stratum}{is_treated}{number}", stratum, is_treated)


@pytest.mark.parametrize(("treated", "control"), [(FEWEST_CLUSTERS - 1, 20), (20, FEWEST_CLUSTERS - 1)])
def test_too_few_nodes_get_no_interval_and_are_told_why(treated, control):
    estimate = estimation.difference_in_differences([*nodes_of(treated), *nodes_of(control, is_treated=False)])
    assert (estimate.verdict, estimate.ratio_interval, estimate.points_interval) == (
        EffectVerdict.NO_INTERVAL,
        None,
        None,
    )
    assert f"{FEWEST_CLUSTERS - 1} nodes or jobs" in estimate.why
    assert estimate.ratio is not None


def test_a_stratum_without_a_control_is_left_out_and_counted():
    both = [*nodes_of(6, stratum="h100"), *nodes_of(6, is_treated=False, stratum="h100")]
    estimate = estimation.difference_in_differences([*both, *nodes_of(3, stratum="a100")])
    assert (estimate.devices, estimate.left_out) == (6, 3)


def test_strata_that_are_too_small_are_taken_together():
    pairs = [pair for n in range(6) for arm in (True, False) for pair in nodes_of(1, arm, f"model-{n}")]
    estimate = estimation.difference_in_differences(pairs)
    assert (estimate.devices, estimate.control_devices, estimate.left_out) == (6, 6, 0)


def test_shares_that_were_zero_are_judged_by_points():
    """Throttling that was not there before has no ratio, and is not called infinite."""
    estimate = estimation.before_and_after((Pair(0, 0.02 + n / 1000, str(n)) for n in range(8)), by_points=True)
    assert (estimate.ratio, estimate.ratio_interval, estimate.verdict) == (None, None, EffectVerdict.HIGHER)
    nothing = estimation.before_and_after((Pair(0, 0, str(n)) for n in range(8)), by_points=True)
    assert (nothing.points, nothing.verdict) == (0, EffectVerdict.SAME)


def test_one_node_that_carries_everything_gets_no_interval_of_the_ratio():
    pairs = [Pair(1, 2, "a"), *(Pair(0, 0, f"idle-{n}") for n in range(9))]
    estimate = estimation.before_and_after(pairs)
    assert estimate.ratio == pytest.approx(1)
    assert estimate.ratio_interval is None
    assert estimate.verdict == EffectVerdict.HIGHER


@pytest.mark.parametrize("judge", [estimation.before_and_after, estimation.difference_in_differences])
def test_nothing_is_said_of_nothing(judge):
    assert judge([]).verdict == EffectVerdict.NO_DATA


def test_a_control_is_needed_for_a_difference_in_differences():
    assert estimation.difference_in_differences(nodes_of(9)).verdict == EffectVerdict.NO_DATA


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706205), (2, 4.302653), (5, 2.570582), (30, 2.042272), (1000, 1.962339)]
)
def test_students_t(freedom, value):
    assert student.t_quantile(0.975, freedom) == pytest.approx(value, abs=1e-5)
