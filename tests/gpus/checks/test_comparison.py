"""Nodes far below their peers, found all at once: the same as each by the plain definition."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpus.services.checks import comparison
from gpus.services.checks.catalog import CHECKS

MEASURE = CHECKS["nccl-all-reduce"].measures[0]
FIGURES = st.floats(min_value=1e-6, max_value=1e9)
ALIKE = st.sampled_from([99.0, 100.0, 101.0, 60.0, 61.0, 91.9, 92.0])


def plainly(values):
    places = [comparison.place(MEASURE, value, values[:i] + values[i + 1 :]) for i, value in enumerate(values)]
    return [(i, place) for i, place in enumerate(places) if place and place.is_far_below]


@given(st.lists(FIGURES | ALIKE, max_size=14) | st.lists(ALIKE, min_size=6, max_size=14))
def test_the_short_way_finds_what_each_place_says(values):
    assert list(comparison.far_below(values)) == plainly(values)


@pytest.mark.parametrize("count", range(1, 40))
def test_of_two_modes_and_of_one_too(count):
    rng = random.Random(count)
    for share in (0.1, 0.4, 0.5, 0.6):
        values = [rng.gauss(250 if rng.random() < share else 400, 4) for _ in range(count)]
        assert list(comparison.far_below(values)) == plainly(values)


def test_each_value_is_looked_at_a_few_times_however_many_modes(monkeypatch):
    """Sorting the others for each of a lower mode took seconds with 5,000 nodes."""
    sorts = []

    def counted(values):
        sorts.append(values)
        return sorted(values)

    monkeypatch.setattr(comparison, "sorted", counted, raising=False)
    monkeypatch.setattr(comparison, "median", lambda values: statistics.median(counted(values)))
    values = [400.0 + number % 7 for number in range(3000)] + [250.0 + number % 7 for number in range(1000)]
    indexes = [index for index, _ in comparison.far_below(values)]
    assert (indexes, len(sorts)) == (list(range(3000, 4000)), 2)
