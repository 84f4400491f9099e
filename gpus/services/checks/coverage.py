"""Nodes that a schedule of checks is about: those due now, and how many have a result within its interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, Exists, F, Min, OuterRef, Q, QuerySet, Subquery

from clusters.models import Node
from common.clock import now
from gpus.models import CheckRun, CheckSchedule
from gpus.services.checks import idleness
from gpus.services.checks.catalog import CHECKS, Check

NOT_RUN_AGAIN = timedelta(hours=1)
"""Until a node is tried again whose run was not carried out."""
NO_RESULT_AGAIN = timedelta(days=1)
"""Until a node is tried again whose run gave no result: it may have been displaced, and counts as not checked."""


@dataclass(frozen=True, slots=True)
class Coverage:
    nodes: int = 0
    """That the check can take: with whole GPUs, or with any where it takes none."""
    checked: int = 0
    """Of them, those that passed or failed within the interval."""
    oldest_at: datetime | None = None
    """The oldest among the newest results, of those nodes that have any."""

    @property
    def due(self) -> int:
        return self.nodes - self.checked


def due(schedule: CheckSchedule, check: Check, most: int) -> list[Node]:
    """Return idle nodes to check now, those first that were tried longest ago. One query.

    Tried, not checked: nodes that are never carried out would be first for ever, and keep all others waiting.
    """
    at, ended = now(), _ended(check.name)
    recent = Q(outcome__in=CheckRun.VERDICTS, ended_at__gt=at - schedule.interval)
    recent |= Q(outcome=CheckRun.Outcome.UNKNOWN, ended_at__gt=at - NO_RESULT_AGAIN)
    recent |= Q(outcome=CheckRun.Outcome.NOT_RUN, ended_at__gt=at - NOT_RUN_AGAIN)
    nodes = idleness.idle(idleness.takers(check), check).filter(
        ~Exists(ended.filter(recent)), cluster=schedule.cluster_id
    )
    nodes = nodes.annotate(tried_at=Subquery(ended.order_by("-ended_at", "pk").values("ended_at")[:1]))
    return list(nodes.order_by(F("tried_at").asc(nulls_first=True), "name", "pk")[:most])


def of(schedules: Iterable[CheckSchedule]) -> dict[int, Coverage]:
    """Return the coverage of each schedule, by its id. One query a check of the catalog."""
    by_check: dict[str, list[CheckSchedule]] = defaultdict(list)
    for row in schedules:
        if row.check_name in CHECKS:
            by_check[row.check_name].append(row)
    return {pk: coverage for name, rows in by_check.items() for pk, coverage in _of_check(CHECKS[name], rows).items()}


def _of_check(check: Check, schedules: Sequence[CheckSchedule]) -> dict[int, Coverage]:
    at = now()
    clusters: dict[int, list[UUID]] = defaultdict(list)
    for row in schedules:
        clusters[row.every_days].append(row.cluster_id)
    within = Q(pk__in=())
    for days, pks in clusters.items():
        within |= Q(cluster__in=pks, result_at__gt=at - timedelta(days=days))
    results = _ended(check.name).filter(outcome__in=CheckRun.VERDICTS).order_by("-ended_at", "pk")
    nodes = idleness.takers(check).filter(cluster__in=[row.cluster_id for row in schedules])
    counted = (
        nodes.alias(result_at=Subquery(results.values("ended_at")[:1]))
        .order_by()
        .values("cluster")
        .annotate(nodes=Count("pk"), checked=Count("pk", filter=within), oldest=Min("result_at"))
    )
    by_cluster = {row["cluster"]: Coverage(row["nodes"], row["checked"], row["oldest"]) for row in counted}
    return {row.pk: by_cluster.get(row.cluster_id, Coverage()) for row in schedules}


def _ended(check_name: str) -> QuerySet[CheckRun]:
    """Select the ended runs of one check on a node of an outer query."""
    return CheckRun.objects.filter(node=OuterRef("pk"), check_name=check_name, status=CheckRun.Status.ENDED)
