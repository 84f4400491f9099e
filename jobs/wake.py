"""Nodes changed: wake the rollouts that wait for them. One message a rollout, whatever the number of nodes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from django.conf import settings
from kombu.exceptions import OperationalError

from jobs import tasks
from jobs.models import Rollout

log = logging.getLogger(__name__)


def nodes_changed(cluster_id: UUID, node_ids: Sequence[int]) -> None:
    """Subscriber of common.hooks.nodes_changed. A dead broker costs a sweep's seconds, never the watch."""
    rollouts = Rollout.objects.due().filter(cluster_id=cluster_id, steps__node_id__in=node_ids, steps__is_live=True)
    for pk in rollouts.distinct().values_list("pk", flat=True):
        wake(pk)


def wake(rollout_id: UUID) -> None:
    try:
        tasks.advance.apply_async((str(rollout_id),), expires=settings.SETPOINT_SWEEP_SECONDS, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("rollout %s waits for the sweep: the broker does not answer: %s", rollout_id, error)
