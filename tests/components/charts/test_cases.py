"""Profiles that the tests of real charts write: Setpoint reads each, also where two values are the same object."""

from __future__ import annotations

import pytest

from profiles.document.schema import parse
from tests.full.harness.charts.cases import CASES, ON_A_NODE, Case, merged


@pytest.mark.parametrize("case", [*CASES, *ON_A_NODE], ids=lambda case: f"{case.name}-{case.versions}")
def test_the_profile_of_a_case_is_read_back_with_its_values(case: Case) -> None:
    (component,) = parse(case.source(case.new, case.values)).components

    assert (component.name, component.version, component.presets) == (case.name, case.new, case.presets)
    assert component.values == merged(case.base, case.values)
