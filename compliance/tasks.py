"""Periodic roll-ups, and messages to agents. Ids in, one short slice; a repeated delivery does no harm."""

from __future__ import annotations

import logging
import threading

from celery import shared_task

from clusters.fleet import FleetError
from clusters.models import Cluster
from common import hooks
from compliance.checks import components
from compliance.services import assignments, held_nodes, history, outliers, standings

log = logging.getLogger(__name__)

CHECKS_AT_ONCE = 2
"""In one process. Each holds a component's objects against the cluster, and steps of rollouts must not wait for it."""
CHECK_SECONDS = 5.0
checks = threading.BoundedSemaphore(CHECKS_AT_ONCE)


@shared_task(ignore_result=True)
def look_for_outliers() -> None:
    """Beat, every minute: clusters whose rows changed are compared again."""
    for cluster in Cluster.objects.all():
        outliers.refresh(cluster)


@shared_task(ignore_result=True)
def renew() -> None:
    """Beat, every 10 minutes: the safety net for what no change announced, such as a killed worker."""
    for pk in Cluster.objects.values_list("pk", flat=True):
        if written := standings.renew_all(pk):
            log.info("%s standings of cluster %s had been missed", written, pk)


@shared_task(ignore_result=True)
def soften() -> None:
    """Beat, every 15 s, and at once when a pool's mode is weakened: agents that repair though they should not."""
    if hooks.unconfirmed_restores():
        return  # a pool's mode may have been made stronger since
    for cluster_id, tunings in assignments.repairing().items():
        cluster = Cluster.objects.filter(pk=cluster_id).first()
        if cluster is None:
            continue
        try:
            assignments.soften(cluster, tunings)
        except FleetError as error:
            log.warning("the agents of %s cannot be told to stop repairing: %s", cluster, error)


@shared_task(ignore_result=True)
def release_held() -> None:
    """Beat, every 5 s: new nodes that are compliant now run pods. After a restore, agents do it when time is up."""
    if not hooks.unconfirmed_restores():
        held_nodes.release()


def soften_soon() -> None:
    """A dead broker costs the 15 s to the next beat."""
    soften.apply_async(expires=15)


@shared_task(ignore_result=True)
def check_components() -> None:
    """Beat, every 5 s: components that are due are looked at, and those that are assigned now have rows."""
    components.reconcile()
    for pk in components.due():
        check_component.apply_async((pk,), expires=CHECK_SECONDS)


@shared_task(ignore_result=True)
def check_component(pk: int) -> None:
    """One look, of at most a minute and a half. More than this process may do at once are dropped: the row is due
    still."""
    if not checks.acquire(blocking=False):
        return
    try:
        components.check(pk)
    finally:
        checks.release()


@shared_task(ignore_result=True)
def forget() -> None:
    """Beat, every hour."""
    history.forget_old()
