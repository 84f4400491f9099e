"""Validation of a strategy: any body is read whole or refused at the field that is wrong."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Invalid
from jobs.forecast.strategy import BOUNDS, ON_FAILURE, ORDERS, Strategy, parse

BOOLEANS = [f.name for f in dataclasses.fields(Strategy) if f.type == "bool"]
NUMBERS = [f.name for f in dataclasses.fields(Strategy) if f.type == "int"]
RUBBISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def refused(raw: dict) -> set[str]:
    with pytest.raises(Invalid) as refusal:
        parse(raw)
    assert all(texts and all(texts) for texts in refusal.value.fields.values())
    return set(refusal.value.fields)


def test_nothing_sent_is_the_careful_default():
    assert parse(None) == parse({}) == Strategy()
    assert Strategy().canary == 1
    assert Strategy().max_failures == 0
    assert not any(getattr(Strategy(), name) for name in BOOLEANS)


def test_every_number_has_bounds():
    assert set(NUMBERS) == set(BOUNDS)


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_number_is_taken_up_to_its_bounds_and_refused_beyond(name):
    low, high = BOUNDS[name]
    assert getattr(parse({name: low}), name) == low
    assert getattr(parse({name: high}), name) == high
    for value in (low - 1, high + 1, str(low), float(low), True, None, [low], {}, 10**30):
        assert refused({name: value}) == {f"strategy.{name}"}, value


@pytest.mark.parametrize("name", BOOLEANS)
def test_a_consent_is_true_or_false_and_never_guessed(name):
    assert getattr(parse({name: True}), name) is True
    for value in (1, 0, "true", "false", "", None, [], {}):
        assert refused({name: value}) == {f"strategy.{name}"}, value


@pytest.mark.parametrize(("name", "known"), [("order", ORDERS), ("on_failure", ON_FAILURE)])
def test_a_choice_is_one_of_those_offered(name, known):
    for value in known:
        assert getattr(parse({name: value}), name) == value
    for value in ("", "Stop", 1, None, True, ["stop"], {"stop": 1}):
        assert refused({name: value}) == {f"strategy.{name}"}, value


@pytest.mark.parametrize("value", ["1", "5000", "1%", "100%", 7])
def test_a_batch_is_a_count_or_a_percentage(value):
    assert parse({"batch": value}).batch == str(value)


@pytest.mark.parametrize(
    "value",
    [
        "", "%", "0", "0%", "-1", "+1", "101%", "5001", " 5", "5 ", "5%%", "1.5", "1e3", "٣", "²", "10 %",
        "99999999999", 0, -3, True, None, 2.0, [], {}, ["5"],
    ],
)  # fmt: skip
def test_anything_else_is_no_batch(value):
    assert refused({"batch": value}) == {"strategy.batch"}


def test_every_wrong_field_is_named_at_once_and_an_unknown_one_too():
    assert refused({"canary": -1, "batch": "x", "color": "red", "order": "name"}) == {
        "strategy.canary",
        "strategy.batch",
        "strategy.color",
    }


@given(st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(Strategy)]) | st.text(max_size=8), RUBBISH))
def test_rubbish_is_refused_by_name_or_read_whole(raw):
    wrong: set[str] = set()
    strategy = Strategy()
    try:
        strategy = parse(raw)
    except Invalid as refusal:
        wrong = set(refusal.fields) or {"no field was named"}

    assert wrong <= {f"strategy.{name}" for name in raw}
    assert wrong or all(getattr(strategy, name) == raw[name] for name in raw if name != "batch")
    assert Strategy.from_json(strategy.to_json()) == strategy
    assert strategy.batch_size(10) >= 1


@given(st.one_of(st.lists(RUBBISH, max_size=2), st.text(min_size=1), st.integers(min_value=1), st.just(True)))
def test_what_is_no_object_is_refused(raw):
    assert refused(raw) == {"strategy"}


@pytest.mark.parametrize(
    ("batch", "total", "size"), [("25%", 8, 2), ("25%", 7, 1), ("25%", 3, 1), ("1%", 1, 1), ("100%", 9, 9), ("4", 9, 4)]
)
def test_a_percentage_is_rounded_down_and_never_none(batch, total, size):
    assert Strategy(batch=batch).batch_size(total) == size


@pytest.mark.parametrize(("own", "cluster", "allowed"), [(0, 3, 3), (1, 3, 1), (3, 3, 3), (9, 3, 3)])
def test_a_strategy_only_lowers_the_clusters_budget(own, cluster, allowed):
    assert Strategy(budget=own).allowed_out(cluster) == allowed
