"""Figures of starts, against plain arithmetic."""

from __future__ import annotations

import random
import statistics
import uuid

import pytest

from gpus.reports.starts import figures
from gpus.reports.starts.figures import Start

ATLAS, BOREALIS = uuid.UUID(int=1), uuid.UUID(int=2)


def start(
    load=100, *, cluster=ATLAS, node="n1", image="a", outcome="ready", probe=True, restarts=0, queue=1, prepare=2
):
    return Start(cluster, image, node, image, outcome, "", probe, restarts, 0, 1, prepare, load)


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_are_measured_values_in_any_order(seed):
    rng = random.Random(seed)
    loads = [rng.choice((None, rng.randrange(10_000))) for _ in range(rng.randrange(1, 80))]
    part = figures.of(start(load) for load in loads).load
    known = sorted(load for load in loads if load is not None)
    assert part.count == len(known)
    assert part.median == (statistics.median(known) if known else None)
    assert (part.p95 is None) == (len(known) < figures.LEAST_FOR_P95)
    if part.p95 is not None:
        assert sum(load <= part.p95 for load in known) >= 0.95 * len(known) > sum(load < part.p95 for load in known)
    rng.shuffle(loads)
    assert figures.of(start(load) for load in loads).load == part


def test_every_start_is_in_one_count():
    whole = figures.of(
        [start(), start(None, probe=False), start(None, restarts=1), start(None, outcome="failed", prepare=None)]
    )
    assert (whole.starts, whole.ready, whole.never_ready) == (4, 3, 1)
    assert (whole.load.count, whole.without_probe, whole.restarted, whole.prepare.count) == (1, 1, 1, 3)


@pytest.mark.parametrize("seed", range(20))
def test_a_nodes_ratio_is_that_of_plain_arithmetic(seed):
    rng = random.Random(seed)
    starts = [
        start(
            rng.choice((None, *range(0, 400, 7))), cluster=rng.choice((ATLAS, BOREALIS)), image=rng.choice("ab"),
            node=rng.choice(("n1", "n2", "n3", "")),
        )
        for _ in range(rng.randrange(60))
    ]  # fmt: skip
    plain = {}
    for own in starts:
        if own.load is None or not own.node:
            continue
        like = [s for s in starts if s.load is not None and s.node and (s.cluster, s.image) == (own.cluster, own.image)]
        others = [s.load for s in like if s.node != own.node]
        if len(others) >= figures.LEAST_OF_PEERS and (usual := statistics.median(others)):
            plain.setdefault((own.cluster, own.node), []).append(own.load / usual)
    lines = figures.slower_nodes(starts)
    assert {(line.cluster, line.node): (line.starts, line.ratio) for line in lines} == {
        key: (len(ratios), pytest.approx(statistics.median(ratios)))
        for key, ratios in plain.items()
        if len(ratios) >= figures.LEAST_OF_NODE
    }
    assert [line.ratio for line in lines] == sorted((line.ratio for line in lines), reverse=True)


def test_a_node_with_a_larger_model_is_not_slower_and_one_alone_is_not_compared():
    large = [start(900, node="n1", image="large") for _ in range(5)]
    small = [start(90, node=node, image="small") for node in ("n2", "n3") for _ in range(5)]
    assert [line.ratio for line in figures.slower_nodes(large + small)] == [1, 1]


def test_many_nodes_and_starts_take_no_long_time():
    starts = [start(number % 997 + 1, node=f"n{number % 5000}") for number in range(50_000)]
    assert len(figures.slower_nodes(starts)) == 5000


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (0, "0 s"),
        (1.5, "1.5 s"),
        (59, "59 s"),
        (70, "1 min 10 s"),
        (3600, "1 h 0 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_times_are_worded_with_their_seconds(seconds, words):
    assert figures.words(seconds) == words
