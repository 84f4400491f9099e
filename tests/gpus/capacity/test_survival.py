"""Quantiles of waits of which some are not over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gpus.capacity import survival
from gpus.capacity.survival import Wait


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=30))
@hypothesis_settings(max_examples=60, deadline=None)
def test_a_wait_that_is_not_over_never_makes_a_quantile_shorter(waits):
    listed = [Wait(float(seconds), is_over) for seconds, is_over in waits]
    median, ninety = survival.quantiles(listed, (0.5, 0.9))
    assert median.seconds <= ninety.seconds
    if all(wait.is_over for wait in listed):
        ordered = sorted(wait.seconds for wait in listed)
        assert median.seconds == ordered[-(-len(ordered) // 2) - 1]
        assert not ninety.is_least
    longer = survival.quantiles([*listed, Wait(99.0, False)], (0.5,))[0]
    assert longer.seconds >= median.seconds
