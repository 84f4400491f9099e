"""Every component of the catalog with its real chart and helm v3, through all operations, over REST."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.full.harness import chart_cases, chart_operations
from tests.full.harness.chart_cases import ARCHIVES, Case
from tests.full.harness.chart_table import Notes
from tests.full.harness.real_chart_fixtures import site, stage, tidied
from tests.full.harness.real_charts import Stage

__all__ = ["site", "stage", "tidied"]
HELM = "v3"
pytestmark = pytest.mark.skipif(not ARCHIVES.is_dir(), reason=f"needs charts: there are none in {ARCHIVES}")


@pytest.mark.parametrize("case", chart_cases.chosen(HELM), ids=lambda case: case.name)
def test_a_real_chart_goes_through_every_operation(
    tidied: Stage, case: Case, record_property: Callable[[str, object], None]
) -> None:
    chart_operations.carry_through(tidied, case, Notes(record_property, case.name, case.versions, HELM))
