"""Schedules as pages and REST show them: what each covers, what it does now, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import django_filters

from common.filtering import ClusterReferenceFilter
from gpus.models import CheckSchedule
from gpus.services.checks import coverage, holds, schedules
from gpus.services.checks.catalog import CHECKS
from gpus.services.checks.coverage import Coverage
from gpus.services.checks.holds import State


class CheckScheduleFilter(django_filters.FilterSet):  # type: ignore[misc]
    check = django_filters.ChoiceFilter(field_name="check_name", choices=[(c.name, c.title) for c in CHECKS.values()])
    cluster = ClusterReferenceFilter()

    class Meta:
        model = CheckSchedule
        fields: list[str] = []


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """One schedule."""

    schedule: CheckSchedule
    coverage: Coverage
    state: State

    @property
    def title(self) -> str:
        return schedules.title(self.schedule)

    @property
    def reason(self) -> str:
        """Explain why nothing is queued now, or what is due; empty: every node was checked within the interval."""
        if self.state.reason:
            return self.state.reason
        if not self.coverage.nodes:
            return "The cluster has no node with whole GPUs that this check takes."
        due = self.coverage.due
        if due == 1:
            return "1 node is due: it is checked when it is idle."
        return f"{due} nodes are due: each is checked when it is idle." if due else ""

    @property
    def next_at(self) -> datetime | None:
        """Instant at which the next node is due; None: some are now, or there is none."""
        oldest = self.coverage.oldest_at
        return oldest + self.schedule.interval if oldest and not self.coverage.due else None


def lines(rows: Sequence[CheckSchedule]) -> list[ScheduleLine]:
    """Eleven queries at most, for any number of schedules and nodes; `cluster` is selected."""
    states, covered = holds.states(rows), coverage.of(rows)
    return [ScheduleLine(row, covered.get(row.pk, Coverage()), states[row.pk]) for row in rows]
