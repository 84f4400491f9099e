"""Counts of a rollout's steps at one moment, taken in one query: what a slice decides by before it locks.

Any later change makes them old; recount under lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min

from jobs.models import Rollout, Step

NODE = Step.Kind.NODE


@dataclass(frozen=True, slots=True)
class StepCount:
    """Steps of one kind, status and direction."""

    kind: str
    status: str
    direction: str
    count: int
    batch: int
    """The lowest."""
    last_batch: int
    """The highest."""
    deadline: datetime | None
    """The earliest."""


class StepTally:
    """`Tally(rollout)` counts."""

    def __init__(self, rollout: Rollout) -> None:
        rows = rollout.steps.order_by().values_list("kind", "status", "direction")
        self.groups = [
            StepCount(*row) for row in rows.annotate(Count("pk"), Min("batch"), Max("batch"), Min("deadline_at"))
        ]
        self.hindrance: list[str | None] = []
        """What progress.start_hindrance found at this moment, once it was asked."""

    def __iter__(self) -> Iterator[StepCount]:
        return iter(self.groups)

    def nodes(self, statuses: Collection[str], direction: str | None = None) -> int:
        return sum(group.count for group in self._nodes(statuses, direction))

    def first_batch(self, statuses: Collection[str], direction: str | None = None) -> int | None:
        """The lowest batch of nodes in these; None: there are none."""
        return min((group.batch for group in self._nodes(statuses, direction)), default=None)

    def is_any_beside(self, batch: int, statuses: Collection[str]) -> bool:
        """Return whether a node of another batch is in one of these statuses."""
        return any(not group.batch == group.last_batch == batch for group in self._nodes(statuses, None))

    def holds(self, rollout: Rollout) -> bool:
        """Return whether a step waits for an operator in a rollout that otherwise continues; see `Rollout.state`.
        What was held on the way forward waits until the revert ends.
        """
        is_back = rollout.status == Rollout.Status.REVERTING
        return rollout.status in Rollout.CARRIED_OUT and any(
            group.status == Step.Status.HELD and not (is_back and group.direction == Step.Direction.FORWARD)
            for group in self.groups
        )

    def has_any(self, statuses: Collection[str]) -> bool:
        """Return whether there are steps of any kind in these statuses."""
        return any(group.status in statuses for group in self.groups)

    def is_overdue(self, status: str, at: datetime) -> bool:
        """Return whether any step in this status is past its deadline."""
        return any(g.deadline is not None and g.deadline < at for g in self.groups if g.status == status)

    def _nodes(self, statuses: Collection[str], direction: str | None) -> Iterator[StepCount]:
        for group in self.groups:
            if group.kind == NODE and group.status in statuses and direction in (None, group.direction):
                yield group
