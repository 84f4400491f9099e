"""Every component of the catalog with its real chart and helm v4, through all operations, over REST."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.full.harness.charts import cases, operations
from tests.full.harness.charts.cases import NEEDS_CHARTS, Case
from tests.full.harness.charts.fixtures import site, stage, tidied
from tests.full.harness.charts.stage import Stage
from tests.full.harness.charts.table import Notes

__all__ = ["site", "stage", "tidied"]
HELM = "v4"
pytestmark = NEEDS_CHARTS


@pytest.mark.every_case
@pytest.mark.parametrize("case", cases.chosen(HELM), ids=lambda case: case.name)
def test_a_real_chart_goes_through_every_operation(
    tidied: Stage, case: Case, record_property: Callable[[str, object], None]
) -> None:
    operations.carry_through(tidied, case, Notes(record_property, case.name, case.versions, HELM))
