"""Versions in order, as semantic versions are."""

from __future__ import annotations

import itertools

import pytest

from components.catalog.versions import bounds, is_older, is_within, range_text

RISING = ["0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1"]
RISING += ["v1.0.0", "1.0.1", "v1.9.0", "1.10.0", "v26.3.3", "26.7.0-rc.1", "v26.7.0"]


@pytest.mark.parametrize(("version", "other"), list(itertools.combinations(RISING, 2)))
def test_the_older_one_is_told(version, other):
    assert is_older(version, other)
    assert not is_older(other, version)


@pytest.mark.parametrize(
    ("version", "other"), [("1.0.0", "v1.0.0"), ("1.0", "1.0.0"), ("1.0.0+a", "1.0.0+b"), ("main", "1.0.0"), ("1", "x")]
)
def test_the_same_and_what_is_no_version_are_not_older(version, other):
    assert not is_older(version, other)
    assert not is_older(other, version)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("", ["0.1.0", "main"], []),
        (">=1.16", ["1.16.0", "v1.16.3", "2.0.0"], ["1.15.9", "1.16.0-rc.1"]),
        ("<26.7.0", ["v26.3.3", "26.7.0-rc.1"], ["v26.7.0", "27.0.0"]),
        (">=26.3.0 <26.3.3", ["26.3.0", "v26.3.2"], ["26.3.3", "26.2.9"]),
        (">1 <=2", ["1.0.1", "2.0.0"], ["1.0.0", "2.0.1"]),
        (">=1.16", ["main", ""], []),  # unreadable: it may be meant
    ],
)
def test_a_range_holds_what_is_between_its_bounds(text, inside, outside):
    assert [version for version in inside if not is_within(version, text)] == []
    assert [version for version in outside if is_within(version, text)] == []


@pytest.mark.parametrize("text", ["1.16", "=>1", ">= 1.16", "~1.2", ">=1.2.3.4", ">=1.x", "any"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(ValueError, match="is not a range of versions such as"):
        bounds(text)


def test_a_range_is_told_in_words():
    assert range_text(">=26.3.0 <26.3.3") == "26.3.0 or newer, before 26.3.3"
    assert range_text("<=0.7.0") == "up to 0.7.0"
