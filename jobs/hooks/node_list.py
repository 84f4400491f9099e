"""Marks that this room adds to lists of nodes, through `common.hooks`: the rollout that is at work on a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.urls import reverse

from common.hooks import NodeMark
from jobs.models import Rollout, Step


def marks(node_ids: Sequence[int]) -> Iterable[NodeMark]:
    """Yield a mark for each node with a step that has not come to rest. One query."""
    under_way = [status for status in Step.Status.values if status not in Step.RESTING]
    rows = Step.objects.filter(node__in=node_ids, rollout__status__in=Rollout.LIVE, status__in=under_way)
    for step in rows.select_related("rollout"):
        value = "running" if step.status in Step.ACTIVE else step.status
        url = reverse("jobs:rollout", args=[step.rollout.number])
        yield NodeMark(step.node_id or 0, "operation", value, str(step.rollout), url)
