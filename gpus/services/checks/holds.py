"""State of a schedule of checks: a reason to queue nothing now, or how many runs, for the queue and pages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, OuterRef, QuerySet, Subquery

from common.clock import now
from gpus.models import CheckImage, CheckRun, CheckSchedule
from gpus.services.checks import idleness
from gpus.services.checks.catalog import CHECKS
from jobs.calendars import targets
from jobs.calendars.targets import ActiveFreeze

IN_A_ROW = 5
"""Runs of one schedule without a result, after which it tries one node at a time: what fails everywhere (an image that
cannot be pulled, a cluster without deploy/setpoint-checks.yaml) fails on the other 5,000 nodes too."""
PAUSE = timedelta(hours=1)
"""Between two of those tries."""


@dataclass(frozen=True, slots=True)
class History:
    """The newest ended runs of one schedule."""

    outcomes: Sequence[str]
    """The newest first, at most IN_A_ROW."""
    last_at: datetime | None
    last_reason: str

    @property
    def is_without_results(self) -> bool:
        return len(self.outcomes) == IN_A_ROW and not set(self.outcomes) & set(CheckRun.VERDICTS)


@dataclass(frozen=True, slots=True)
class State:
    reason: str
    """Why nothing is queued now, in sentences; empty: nodes that are due and idle are."""
    room: int
    """Runs that may be queued now; 0 where there is a reason."""
    live: int
    """Its runs that wait or run."""
    last_at: datetime | None
    """When its newest run ended."""


def states(schedules: Sequence[CheckSchedule]) -> dict[int, State]:
    """Return the state of each schedule, by its id. Five queries for any number; `cluster` is selected."""
    clusters = {row.cluster_id: row.cluster for row in schedules}
    images = set(CheckImage.objects.values_list("check_name", flat=True))
    freezes = targets.active_freezes(list(clusters.values()))
    live = _live(list(clusters))
    histories = _histories(CheckSchedule.objects.filter(pk__in=[row.pk for row in schedules]))
    out = {}
    for row in schedules:
        history = histories.get(row.pk, History((), None, ""))
        own, all_ = live.get((row.cluster_id, row.pk), 0), sum(n for (pk, _), n in live.items() if pk == row.cluster_id)
        reason = _barred(row, row.check_name in images, freezes.get(row.cluster_id)) or _paused(history)
        room = min((1 if history.is_without_results else row.at_once) - own, row.cluster.budget - all_)
        if not reason and room <= 0:
            reason = _full(row, own, all_)
        out[row.pk] = State(reason, 0 if reason else room, own, history.last_at)
    return out


def _barred(schedule: CheckSchedule, has_image: bool, freeze: ActiveFreeze | None) -> str:
    if schedule.check_name not in CHECKS:
        return "The catalog has no such check any more."
    if not has_image:
        return f"{CHECKS[schedule.check_name].title} has no image: an administrator sets it first."
    if why := idleness.of_others(schedule.cluster) or schedule.cluster.why_unknown:
        return why
    return f"{targets.FREEZE_IS_ACTIVE} {freeze.reason}" if freeze else ""


def _paused(history: History) -> str:
    if not history.is_without_results or history.last_at is None or now() - history.last_at >= PAUSE:
        return ""
    newest = history.last_reason or "It gave no reason."
    return f"The last {IN_A_ROW} runs ended without a result, so one node is tried an hour. The newest: {newest}"


def _full(schedule: CheckSchedule, own: int, in_cluster: int) -> str:
    if in_cluster >= schedule.cluster.budget:
        nodes = "1 node" if in_cluster == 1 else f"{in_cluster} nodes"
        return f"The cluster's budget is {schedule.cluster.budget}, and checks wait or run on {nodes}."
    return f"As many as may run at once do: {own}."


def _live(clusters: Sequence[UUID]) -> Mapping[tuple[UUID, int | None], int]:
    """Count runs that wait or run, by cluster and schedule."""
    rows = CheckRun.objects.live().filter(cluster__in=clusters).order_by().values("cluster", "schedule")
    return {(row["cluster"], row["schedule"]): row["runs"] for row in rows.annotate(runs=Count("pk"))}


def _histories(schedules: QuerySet[CheckSchedule]) -> dict[int, History]:
    """Read a few rows of an index for each schedule. One query."""
    ended = CheckRun.objects.filter(schedule=OuterRef("pk"), status=CheckRun.Status.ENDED).order_by("-ended_at", "pk")
    newest: dict[str, Any] = {f"newest_{n}": Subquery(ended.values("outcome")[n : n + 1]) for n in range(IN_A_ROW)}
    more = {"last_at": Subquery(ended.values("ended_at")[:1]), "last_reason": Subquery(ended.values("reason")[:1])}
    out = {}
    for row in schedules.order_by().annotate(**newest, **more).values("pk", *newest, *more):
        outcomes = [row[name] for name in newest if row[name] is not None]
        out[row["pk"]] = History(outcomes, row["last_at"], row["last_reason"] or "")
    return out
