"""Patterns of references: a part of regular expressions that means the same there, and is never slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.approvals.tickets import patterns

ATOMS = st.sampled_from(["a", "B", "7", "-", "\\d", "\\w", ".", "[A-C]", "[a\\d_-]", "\\.", "\\+", "[x]"])
COUNTS = st.sampled_from(["", "", "?", "*", "+", "{2}", "{0,3}", "{1,}"])
ALTERNATIVES = st.lists(st.tuples(ATOMS, COUNTS).map("".join), min_size=1, max_size=6).map("".join)
PATTERNS = st.lists(ALTERNATIVES, min_size=1, max_size=3).map("|".join)
REFERENCES = st.text("aABC7-_.+x", min_size=1, max_size=8)


@given(PATTERNS, REFERENCES)
def test_what_is_read_means_what_it_means_in_regular_expressions(pattern: str, reference: str):
    assert patterns.fits(pattern, reference) == bool(re.fullmatch(pattern, reference, re.ASCII))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of [--a]
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7F), max_size=30))
def test_a_pattern_is_read_as_python_does_or_refused(pattern: str):
    """Accepted patterns compile there, so that what an administrator tried elsewhere holds here."""
    try:
        patterns.read(pattern)
    except patterns.BadPattern:
        return
    re.compile(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["", "(CHG|INC)\\d+", "(a+)+", "CHG{", "CHG{7", "CHG{9,2}", "CHG{999}", "[A", "[]", "[^A]", "[z-a]", "a**", "a+?",
     "*a", "^CHG", "CHG$", "a||b", "|a", "\\s", "\\1", "a\\", "CHG \\d", "CHG\u00e9", "a" * 101, "(?=a)b"],
)  # fmt: skip
def test_what_is_not_read_is_refused_with_a_sentence(pattern: str):
    with pytest.raises(patterns.BadPattern) as refusal:
        patterns.read(pattern)
    assert str(refusal.value).endswith(".")


def test_no_pattern_makes_a_match_slow():
    """50 stars over 64 characters: more ways than a backtracking matcher can try in the age of the universe."""
    began = time.process_time()
    assert not patterns.fits("a*" * 49 + "b", "a" * 64)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", ["", " ", "CHG 1", "CHG\n", "CHG0000001\n", "x" * 65, "CHG\u0661"])
def test_a_reference_is_short_and_visible(text: str):
    assert not patterns.fits(".*", text)
