"""The fold over samples of a training step, against what a trainer did that the samples are of."""

from __future__ import annotations

import math
import random
from urllib.parse import quote

import pytest

from gpus.reports.training import catalog, progress


class Trainer:
    """A run of a trainer by chance: lives, each of which loads, trains from a checkpoint, and fails."""

    def __init__(self, rng):
        self.step = rng.choice((0.5, 3.0, 20.0, 90.0))
        self.lives = []
        """(first second of training, last second, step of the checkpoint) of each life."""
        at, base = 1_000_000.0 + rng.random(), rng.choice((0, 5_000))
        for _ in range(rng.randrange(1, 5)):
            loads, trains = rng.uniform(30, 300), rng.uniform(1800, 6000)
            self.lives.append((at + loads, at + loads + trains, base))
            base += round(rng.uniform(0.1, 0.9) * trains / self.step)
            at += loads + trains
        self.start, self.end = 1_000_000.0, at

    def at(self, when):
        """Return what its gauge says: 0 from a start until a step is done."""
        for begun, ended, base in self.lives:
            if when < begun:
                return 0.0
            if when < ended:
                done = int((when - begun) / self.step)
                return float(base + done) if done else 0.0
        return None

    def samples(self, resolution):
        times = [self.start + resolution * number for number in range(int((self.end - self.start) / resolution))]
        return [(when, value) for when in times if (value := self.at(when)) is not None]

    @property
    def lost(self):
        """Return the steps that restarts took back."""
        ends = [base + int((ended - begun) / self.step) for begun, ended, base in self.lives]
        return sum(end - base for end, (_, _, base) in zip(ends[:-1], self.lives[1:], strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_what_restarts_took_back_is_known_within_two_samples_of_each(seed):
    rng = random.Random(seed)
    trainer, resolution = Trainer(rng), 15.0
    folded = progress.fold(trainer.samples(resolution), resolution)
    restarts = len(trainer.lives) - 1
    assert len(folded.falls) == restarts
    within = restarts * (2 * resolution / trainer.step + 2)
    assert trainer.lost - within <= folded.lost <= trainer.lost, "at least so many"
    assert folded.step_seconds == pytest.approx(trainer.step, rel=0.15)
    net = folded.last - folded.first
    assert folded.kept == pytest.approx(folded.made - folded.lost) == pytest.approx(net)


@pytest.mark.parametrize("seed", range(40))
def test_order_copies_gaps_and_nonsense_change_nothing_that_is_known(seed):
    rng = random.Random(seed)
    trainer, resolution = Trainer(rng), 15.0
    samples = trainer.samples(resolution)
    whole = progress.fold(samples, resolution)
    nonsense = [(when, rng.choice((math.nan, math.inf, -math.inf, -5.0, 0.0, 1e300))) for when, _ in samples]
    nonsense += [(math.nan, 7.0), (math.inf, 7.0)]
    mixed = [*samples, *rng.sample(samples, len(samples) // 3), *rng.sample(nonsense, len(nonsense) // 3)]
    rng.shuffle(mixed)
    assert progress.fold(mixed, resolution) == whole
    kept = [sample for sample in samples if rng.random() < 0.8]
    thinned = progress.fold(kept, resolution)
    assert 0 <= thinned.kept <= thinned.made
    assert thinned.lost <= whole.lost
    assert thinned.step_seconds is None or thinned.step_seconds == pytest.approx(trainer.step, rel=0.2)


@pytest.mark.parametrize("seed", range(20))
def test_a_second_rank_that_lags_or_misses_a_scrape_is_no_restart(seed):
    """The foremost rank that was there: of the one that is 40 seconds behind where the other was not scraped."""
    rng = random.Random(seed)
    trainer, resolution = Trainer(rng), 15.0
    lone = progress.fold(trainer.samples(resolution), resolution)
    samples = []
    for when, value in trainer.samples(resolution):
        behind = trainer.at(max(trainer.start, when - 40))
        samples.append((when, min(value, behind) if rng.random() < 0.1 else value))
    folded = progress.fold(samples, resolution, has_ranks=True)
    real = [fall for fall in lone.falls if fall.lost > progress.SKEW / trainer.step + 2]
    assert len(folded.falls) <= len(lone.falls)
    assert len(folded.falls) >= len(real) - 1
    assert folded.lost <= lone.lost + 60 / trainer.step * len(lone.falls) + 2
    assert len(progress.fold(samples, resolution).falls) >= len(folded.falls)


def rows(*values, every=15.0):
    return [(every * number, float(value)) for number, value in enumerate(values)]


def test_a_run_from_a_checkpoint_says_zero_until_its_first_step_and_loses_only_what_lies_between():
    folded = progress.fold(rows(70, 100, 0, 0, 81, 91, 101, 111), 15.0)
    (fall,) = folded.falls
    assert (fall.highest, fall.resumed, fall.lost) == (100, 81, 19)
    assert (folded.first, folded.last, folded.made, folded.kept) == (70, 111, 60, 41)


def test_a_fall_to_the_first_steps_begins_again_and_takes_nothing_back():
    folded = progress.fold(rows(1000, 1100, 0, 2, 52), 15.0)
    assert (folded.falls, folded.lost, folded.begun_again) == ((), 0, 1)
    assert (folded.made, folded.kept, folded.seen) == (150, 50, 50)
    two_runs = [(t, t // 4) for t in range(15, 20000, 15)] + [(t, (t - 20000) // 4) for t in range(20015, 40000, 15)]
    folded = progress.fold(two_runs, 15.0)
    assert (folded.lost, folded.begun_again) == (0, 1)
    assert folded.kept == pytest.approx(5000, abs=10)


def test_a_checkpoint_of_before_takes_back_and_keeps_never_less_than_nothing():
    folded = progress.fold(rows(5000, 5100, 4000, 4100, 3000), 15.0)
    assert (folded.kept, folded.seen, folded.made, folded.lost) == (0, 0, 200, 2200)


def test_steps_over_a_gap_are_kept_and_not_seen():
    samples = [(15.0 * number, 10.0 * number) for number in range(1, 101) if not 30 < number < 60]
    folded = progress.fold(samples, 15.0)
    assert (folded.kept, folded.seen, folded.gaps) == (990, 690, ((450.0, 900.0),))
    everything = progress.fold(samples, 15.0, known=[15.0 * number for number in range(1, 101)])
    assert (everything.kept, everything.seen, everything.gaps) == (990, 990, ()), "its pods were scraped"


def test_a_process_that_loads_is_no_gap():
    folded = progress.fold(rows(70, 100, 0, 0, 0, 0, 101, 131), 15.0)
    assert (folded.seen, folded.gaps) == (61, ())


@pytest.mark.parametrize(
    ("spreads", "median", "is_apart"),
    [([], 1.0, False), ([0, 60, 61, 5000], 1.0, False), ([62, 500, 600], 1.0, True), ([1, 1, 1], None, False)],
)
def test_targets_that_stay_apart_count_different_runs(spreads, median, is_apart):
    assert progress.is_apart(spreads, median) == is_apart


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        (rows(1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7), 45.0),  # slower than it is scraped
        (rows(0, 30, 60, 90), 0.5),
        (rows(30, 60, 60, 60, 60, 60, 60, 90, 120, 150), 0.5),  # a stall is one step of many
        (rows(5), None),
        (rows(5, 5, 5, 5), None),
        (rows(1, 2), None),
        ([], None),
        ([(0.0, 10.0), (15.0, 40.0), (900.0, 50.0), (915.0, 80.0), (930.0, 110.0)], 0.5),  # a gap tells nothing
    ],
)
def test_the_time_of_a_step_is_told_by_when_it_changed(samples, seconds):
    assert progress.fold(samples, 15.0).step_seconds == (seconds if seconds is None else pytest.approx(seconds))


def test_the_sites_own_names_come_first_and_long_lists_of_pods_are_several_queries(settings):
    settings.SETPOINT_GPU_STEP_METRICS = ["my_step", "trainer_step"]
    named = catalog.metrics()
    assert [metric.name for metric in named] == ["my_step", "trainer_step", "ray_skyrl_trainer_global_step"]
    assert [metric.trainer for metric in named] == [catalog.OWN, "prime-rl", "SkyRL"]
    assert catalog.chosen({"trainer_step": 1, "my_step": 1}).name == "my_step"
    assert catalog.chosen({}) is None
    pods = [f"train-{number:04d}-{'x' * 40}" for number in range(500)]
    parts = catalog.queries("team", pods, 'cluster="a"')
    assert len(parts) > 1
    assert sum(query.scraped.count("|train-") + 1 for query in parts) == 500
    for query in parts:
        assert len(quote(query.copies, safe="")) < 8000
        assert query.steps.count('namespace="team"') == query.steps.count('cluster="a"') == 2
        assert query.steps.count(query.scraped.partition("pod=~")[2].partition(",")[0]) == 2, "up is of these pods"
        assert "my_step|trainer_step|ray_skyrl_trainer_global_step" in query.steps
    assert catalog.queries("team", [], "") == []
