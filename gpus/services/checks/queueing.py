"""Queues the runs of schedules: on nodes that are due and idle, a few at a time, and never one twice.

No run waits for a busy node: the node is taken once it is idle. Two processes that come to one schedule at once are
ordered by the cluster's row, which also orders schedules of one cluster that want its last slot.
"""

from __future__ import annotations

import logging

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef

from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from gpus.models import CheckImage, CheckRun, CheckSchedule
from gpus.services.checks import coverage, holds, starting
from gpus.services.checks.catalog import CHECKS

log = logging.getLogger(__name__)


def due() -> list[int]:
    """Return the schedules that may have something to queue, those first that queued longest ago: none of a cluster
    keeps another from its budget. One query."""
    has_image = Exists(CheckImage.objects.filter(check_name=OuterRef("check_name")))
    rows = CheckSchedule.objects.filter(
        has_image,
        check_name__in=list(CHECKS),
        cluster__ownership=Cluster.Ownership.OURS,
        cluster__reach=Cluster.Reach.REACHABLE,
    )
    return list(rows.order_by(F("queued_at").asc(nulls_first=True), "pk").values_list("pk", flat=True))


def queue(pk: int) -> int:
    """Queue what one schedule may now, and return how many runs. As many queries for 3 nodes as for 5,000."""
    try:
        with transaction.atomic():
            return _queue(pk)
    except IntegrityError as error:  # an operator started a check on one of these nodes: the next minute shows it
        log.info("schedule %s: queued nothing, %s", pk, error)
        return 0


def _queue(pk: int) -> int:
    cluster = Cluster.objects.select_for_update(no_key=True).filter(check_schedules=pk).first()
    schedule = CheckSchedule.objects.filter(pk=pk).first()
    if cluster is None or schedule is None:
        return 0
    schedule.cluster = cluster
    state = holds.states([schedule])[pk]
    if not state.room:
        return 0
    check = CHECKS[schedule.check_name]
    nodes = coverage.due(schedule, check, state.room)
    if not nodes:
        return 0
    image, author = CheckImage.objects.get(check_name=check.name).image, f"schedule of {schedule.changed_by}"
    CheckRun.objects.bulk_create(
        starting.new_run(check, image, node, at_once=schedule.at_once, author=author, schedule=schedule)
        for node in nodes
    )
    CheckSchedule.objects.filter(pk=pk).update(queued_at=now())
    audit.record(
        by=None,
        action="check.start",
        target=f"check:{check.name}",
        target_name=check.title,
        cluster_id=cluster.pk,
        message=f"{len(nodes)} idle node{'s' if len(nodes) > 1 else ''}, by the {author}",
        after={"nodes": [node.name for node in nodes], "image": image, "schedule": pk},
    )
    return len(nodes)
