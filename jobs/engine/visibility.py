"""Time in which a cluster could not be read counts for no step (law 4).

Neither an API server that is away nor credentials that are refused say anything about a node. Nothing is decided
meanwhile, and afterwards each step has as much time left as it had when the cluster was last seen.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F

from clusters.fleet import CredentialsRefused, FleetError
from common.clock import now
from jobs.engine.deadlines import REFUSED
from jobs.engine.event_log import log, set_waiting_sentence
from jobs.models import Rollout, Step


def mark_lost(rollout: Rollout, error: FleetError) -> None:
    """Say what is waited for, and since when; nothing else is decided."""
    why = f"{REFUSED}: {error}" if isinstance(error, CredentialsRefused) else f"The API server says: {error}"
    set_waiting_sentence(rollout, f"{rollout.cluster} cannot be read. {why}")
    if rollout.blind_since is None:
        seen = rollout.cluster.observed_at
        rollout.blind_since = min(now(), seen) if seen else now()
        Rollout.objects.filter(pk=rollout.pk, blind_since=None).update(blind_since=rollout.blind_since)


def mark_regained(rollout: Rollout) -> None:
    """Give steps back the time in which their cluster was not seen."""
    if rollout.blind_since is None:
        return
    with transaction.atomic():
        row = Rollout.objects.select_for_update(no_key=True).get(pk=rollout.pk)
        since, rollout.blind_since = row.blind_since, None
        if since is None:  # another worker did
            return
        Rollout.objects.filter(pk=rollout.pk).update(blind_since=None)
        minutes = _give_back(rollout, since) / 60
        log(rollout, f"{rollout.cluster} can be read again; steps have {minutes:.0f} min more for the time between.")


def _give_back(rollout: Rollout, since: datetime) -> float:
    """Seconds that passed. A step that was entered meanwhile has its own part of them."""
    at = now()
    steps = rollout.steps.filter(status__in=Step.ACTIVE, deadline_at__isnull=False)
    steps.filter(entered_at__gt=since).update(deadline_at=F("deadline_at") + (at - F("entered_at")), not_before=None)
    steps.filter(entered_at__lte=since).update(deadline_at=F("deadline_at") + (at - since), not_before=None)
    return max(0.0, (at - since).total_seconds())
