"""Background tasks of clusters. Safe to run twice: each run reads the cluster again."""

from __future__ import annotations

import logging

from celery import shared_task

from clusters.connection import registry, token_renewal
from clusters.fleet import FleetError
from clusters.inventory import daily_counts, enrolment, inspection
from clusters.models import Cluster

log = logging.getLogger(__name__)


@shared_task(ignore_result=True, is_kept=True)
def refresh(cluster_id: str) -> None:
    """Read a whole cluster now; whether it answered is on its row. Where the broker is away, the process that was
    asked does it (`is_kept`): no row remembers the wish."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return
    try:
        fleet = registry.connect(cluster)
        inspection.inspect(cluster, fleet)
        inspection.refresh(cluster, fleet)
        enrolment.enrol(cluster, fleet)
    except FleetError as error:
        log.warning("%s could not be read on request: %s", cluster, error)


@shared_task(name="clusters.tasks.count_day", ignore_result=True)
def count_day() -> None:
    """Beat, every 10 minutes: today's counts of every cluster. The last of a day stay."""
    daily_counts.count_all()


@shared_task(name="clusters.tasks.renew_credentials", ignore_result=True)
def renew_credentials() -> None:
    """Beat, each minute: tokens at half of their life. The shortest that an API server gives live ten minutes."""
    token_renewal.judge_stored()
    for cluster in token_renewal.due():
        token_renewal.renew(cluster)
