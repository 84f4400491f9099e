"""Observed values are stored as text: they come back unchanged, or are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.nodetuning import MAX_KEY, MAX_OBSERVED, MAX_OBSERVED_TEXT, MAX_VALUE, Malformed, Spec, Status

KEYS = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=MAX_KEY)


@given(st.lists(KEYS, max_size=20).map(tuple))
def test_the_keys_to_observe_come_back_in_their_order(observe):
    sent = Spec("uid", observe=observe).to_json()

    assert Spec.from_json(json.loads(json.dumps(sent))).observe == observe


@given(st.dictionaries(KEYS, st.text(max_size=MAX_VALUE), max_size=20))
def test_what_a_kernel_answers_comes_back_whatever_is_in_it(observed):
    sent = Status(observed=observed).to_json()

    assert Status.from_json(json.loads(json.dumps(sent))).observed == observed


def test_all_keys_with_the_longest_values_fit():
    observed = {f"{n:0{MAX_KEY}}": "x" * MAX_VALUE for n in range(MAX_OBSERVED)}
    raw = Status(observed=observed).to_json()

    assert len(raw["observed"]) <= MAX_OBSERVED_TEXT
    assert Status.from_json(raw).observed == observed


@pytest.mark.parametrize(
    "text", ["a\n" * MAX_OBSERVED + "a", "k" * (MAX_KEY + 1), "a\n" * 40_000, ["vm.swappiness"], 7]
)
def test_keys_beyond_the_bounds_are_refused_by_name(text):
    with pytest.raises(Malformed, match=r"^observe:"):
        Spec.from_json({"nodeUID": "uid", "observe": text})
