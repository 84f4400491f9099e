"""Versions in order, as semantic versions are."""

from __future__ import annotations

import itertools

import pytest

from components.catalog.versions import is_older

RISING = ["0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1"]
RISING += ["v1.0.0", "1.0.1", "v1.9.0", "1.10.0", "v26.3.3", "26.7.0-rc.1", "v26.7.0"]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(RISING, 2)))
def test_the_older_one_is_told(one, other):
    assert is_older(one, other)
    assert not is_older(other, one)


@pytest.mark.parametrize(
    ("one", "other"), [("1.0.0", "v1.0.0"), ("1.0", "1.0.0"), ("1.0.0+a", "1.0.0+b"), ("main", "1.0.0"), ("1", "x")]
)
def test_the_same_and_what_is_no_version_are_not_older(one, other):
    assert not is_older(one, other)
    assert not is_older(other, one)
