"""Load times before and after a rollout, on the nodes that it changed and on others: a comparison, no verdict."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, QuerySet

from clusters.models import PodStart
from common.clock import now
from gpus.reports.starts.figures import words
from jobs.models import Rollout, Step

LEAST = 5
"""Starts of an image before and after."""
LONGEST = timedelta(days=7)
SKEW = timedelta(hours=1)
"""Between the cluster's clock and Setpoint's, at most."""
MOST_STARTS = 10_000
"""Before, and after; those nearest to the rollout count."""
MOST_LINES = 20
CHANGED, OTHER = "changed", "other"
Loads = dict[tuple[str, str, bool], list[int]]
"""Seconds by image, place, and whether after."""


@dataclass(frozen=True, slots=True)
class Side:
    """Starts of one image on changed or on other nodes."""

    before: int
    after: int
    median_before: float | None
    """Seconds; None, as the next one, where either side has fewer than LEAST."""
    median_after: float | None

    @property
    def is_known(self) -> bool:
        return self.median_before is not None

    @property
    def words(self) -> str:
        return f"{words(self.median_before)} → {words(self.median_after)}"


@dataclass(frozen=True, slots=True)
class ImageLine:
    image: str
    changed: Side
    other: Side


@dataclass(frozen=True, slots=True)
class RolloutStarts:
    since: datetime
    began: datetime
    ended: datetime
    until: datetime
    lines: list[ImageLine]
    """Of images with enough starts on changed nodes; the most starts first."""
    more: int
    is_cut: bool


def of(rollout: Rollout) -> RolloutStarts | None:
    """Compare equally long times before and after a rollout; None while no node is changed, or it runs. 4 queries."""
    steps = rollout.steps.of_nodes()
    changed = steps.filter(has_applied=True, status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD)
    names = set(changed.values_list("node_name", flat=True))
    touched = set(steps.filter(has_applied=True).values_list("node_name", flat=True))
    if rollout.is_live or not rollout.started_at or not names:
        return None
    began, ended = rollout.started_at, changed.aggregate(last=Max("entered_at"))["last"]
    length = min(LONGEST, now() - ended)
    rows = PodStart.objects.filter(
        cluster=rollout.cluster_id, load_seconds__isnull=False, ended_at__gte=began - length - SKEW
    ).exclude(image="")
    # A load belongs where all of it was: one that ran while its node was changed is of neither side. A load that still
    # runs has no row, so a long one must be as rare before as after: both ends count on both sides.
    before = rows.filter(started_at__gte=began - length, ready_at__lte=began).order_by("-ready_at", "pk")
    after = rows.filter(started_at__gte=ended, ready_at__lte=ended + length).order_by("started_at", "pk")
    loads: Loads = defaultdict(list)
    is_cut = False
    for is_after, side in ((False, before), (True, after)):
        values = _values(side)
        is_cut |= len(values) > MOST_STARTS
        for node, image, load in values[:MOST_STARTS]:
            if node in names or node not in touched:
                loads[image, CHANGED if node in names else OTHER, is_after].append(load)
    lines = _lines(loads)
    return RolloutStarts(
        began - length, began, ended, ended + length, lines[:MOST_LINES], max(0, len(lines) - MOST_LINES), is_cut
    )


def _values(side: QuerySet[PodStart]) -> list[tuple[str, str, int]]:
    values = side.values_list("node_name", "image", "load_seconds")[: MOST_STARTS + 1]
    return [(node, image, load) for node, image, load in values if load is not None]


def _lines(loads: Mapping[tuple[str, str, bool], list[int]]) -> list[ImageLine]:
    lines = [
        ImageLine(image, *(_side(loads, image, place) for place in (CHANGED, OTHER)))
        for image in sorted({image for image, _, _ in loads})
    ]
    known = [line for line in lines if line.changed.is_known]
    return sorted(known, key=lambda line: (-line.changed.before - line.changed.after, line.image))


def _side(loads: Mapping[tuple[str, str, bool], list[int]], image: str, place: str) -> Side:
    before, after = (loads.get((image, place, is_after), []) for is_after in (False, True))
    if min(len(before), len(after)) < LEAST:
        return Side(len(before), len(after), None, None)
    return Side(len(before), len(after), statistics.median(before), statistics.median(after))
