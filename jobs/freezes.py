"""Freezes: while one stands, no step starts. For one cluster, or for all."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts.models import User
from accounts.permissions import require
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, WrongState
from jobs.models import Freeze


def freeze(*, cluster: Cluster | None, reason: str, by: User, until: datetime | None = None) -> Freeze:
    """Stop new starts in one cluster, or everywhere (admin of all). Raises NotAllowed, Invalid."""
    scopes = cluster.scopes if cluster else ("*",)
    require(
        by, "operator" if cluster else "admin", scopes, doing="freeze " + (cluster.name if cluster else "all clusters")
    )
    if not reason.strip():
        raise Invalid("A freeze needs a reason.", fields={"reason": ["Say why; everybody who waits will read it."]})
    if until and until <= now():
        raise Invalid("The freeze would be over already.", fields={"until": ["Must be a time to come, in UTC."]})
    with transaction.atomic():
        row = Freeze.objects.create(cluster=cluster, reason=reason.strip()[:500], created_by=by, until=until)
        _record(row, by, "freeze.set")
    return row


def lift(row: Freeze, *, by: User) -> Freeze:
    scopes = row.cluster.scopes if row.cluster else ("*",)
    require(by, "operator" if row.cluster else "admin", scopes, doing="lift this freeze")
    with transaction.atomic():
        if not Freeze.objects.filter(pk=row.pk, lifted_at=None).update(lifted_at=now(), lifted_by=by):
            raise WrongState("This freeze was lifted already.")
        _record(row, by, "freeze.lift")
    row.refresh_from_db()
    return row


def _record(row: Freeze, by: User, action: str) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"freeze:{row.pk}",
        target_name=row.cluster.name if row.cluster else "all clusters",
        cluster_id=row.cluster_id,
        message=row.reason,
    )
