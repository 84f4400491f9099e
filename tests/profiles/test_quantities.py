"""Amounts of Kubernetes, against arithmetic in fractions by the text of its specification."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import quantities

FACTORS = {"": Fraction(1)}
FACTORS |= {
    unit: Fraction(10) ** power for unit, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
}
FACTORS |= {f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
LIMIT = 2**63 - 1

digits = st.text("0123456789", min_size=1, max_size=12)
numbers = digits | st.builds("{}.{}".format, digits, digits | st.just("")) | st.builds(".{}".format, digits)


@given(numbers, st.sampled_from(sorted(FACTORS)))
def test_every_amount_is_read_exactly(number: str, unit: str) -> None:
    exact = Fraction(f"0{number}" if number.startswith(".") else number.rstrip(".")) * FACTORS[unit]
    if exact > LIMIT:
        with pytest.raises(quantities.BadQuantity, match="more than"):
            quantities.read(number + unit)
        assert quantities.count(number + unit) == 0
    else:
        assert Fraction(quantities.read(number + unit)) == exact
        assert quantities.count(number + unit) == exact.numerator // exact.denominator


@given(numbers, st.integers(-9, 9))
def test_an_exponent_is_a_power_of_ten(number: str, exponent: int) -> None:
    exact = Fraction(f"0{number}" if number.startswith(".") else number.rstrip(".")) * Fraction(10) ** exponent
    for sign in "eE":
        text = f"{number}{sign}{exponent}"
        if exact <= LIMIT:
            assert Fraction(quantities.read(text)) == exact


@given(st.integers(0, 2**53), st.integers(0, 2**53), st.sampled_from(["", "m", "k", "Ki"]))
def test_more_is_more(amount: int, other: int, unit: str) -> None:
    if max(amount, other) * FACTORS[unit] <= LIMIT:
        assert (amount < other) == (quantities.read(f"{amount}{unit}") < quantities.read(f"{other}{unit}"))


@given(st.text(max_size=40) | st.none() | st.booleans() | st.lists(st.integers(), max_size=2) | st.floats())
def test_whatever_is_written_is_an_amount_or_refused(raw: object) -> None:
    try:
        amount = quantities.read(raw)
    except quantities.BadQuantity:
        assert quantities.count(raw) == 0
    else:
        assert 0 <= amount <= LIMIT


@pytest.mark.parametrize(
    "text", ["", " 8", "8 ", "0x8", "1Kib", "1ki", "1K", "1e", "1ee3", "+", ".", "1_000", "٣", "1e3Ki", "-1"]
)
def test_what_kubernetes_refuses_is_no_amount(text: str) -> None:
    with pytest.raises(quantities.BadQuantity):
        quantities.read(text)


@pytest.mark.parametrize(
    ("text", "whole"), [("2Pi", 2 * 1024**5), ("1E", 10**18), ("9007199254740993", 2**53 + 1), ("1500u", 0)]
)
def test_large_and_tiny_amounts_count_in_whole(text: str, whole: int) -> None:
    """These amounts were 0 once, or rounded by floating point."""
    assert quantities.count(text) == whole
