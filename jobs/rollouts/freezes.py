"""Freezes: while one is active, no step starts. For one cluster, or for all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction

from accounts.models import User
from accounts.permissions import ANYWHERE, GLOBAL, may, require
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, WrongState
from jobs.models import Freeze

FARTHEST_END = timedelta(days=366)
"""Longer than a year is "until it is lifted"."""


def freeze(*, cluster: Cluster | None, reason: str, by: User, until: datetime | None = None) -> Freeze:
    """Stop new starts in one cluster, or everywhere (admin of all). Raises NotAllowed, Invalid."""
    role, scopes = _required_role(cluster)
    require(by, role, scopes, doing="freeze " + (cluster.name if cluster else "all clusters"))
    if not reason.strip():
        raise Invalid("A freeze needs a reason.", fields={"reason": ["Give a reason; everyone who waits sees it."]})
    if until and until <= now():
        raise Invalid("The freeze would already be over.", fields={"until": ["Must be a time to come, in UTC."]})
    if until and until > now() + FARTHEST_END:
        raise Invalid(
            "The freeze is too long.", fields={"until": ["At most a year from now; empty: until it is lifted."]}
        )
    with transaction.atomic():
        row = Freeze.objects.create(cluster=cluster, reason=reason.strip()[:500], created_by=by, until=until)
        _record(row, by, "freeze.set")
    return row


def reason_not_to_freeze(user: User) -> str:
    """Return why this person may set no freeze at all; empty when they may set some."""
    if may(user, "operator", ANYWHERE) or may(user, "admin", GLOBAL):
        return ""
    return "This needs the role operator for a cluster, or admin for all of them."


def reason_not_to_lift(row: Freeze, user: User) -> str:
    role, scopes = _required_role(row.cluster)
    where = row.cluster.name if row.cluster else "all clusters"
    return "" if may(user, role, scopes) else f"This needs the role {role} for {where}."


def _required_role(cluster: Cluster | None) -> tuple[str, Sequence[str]]:
    """The role and its scopes: an operator's where the cluster is theirs, an admin's for everything."""
    return ("operator", cluster.scopes) if cluster else ("admin", GLOBAL)


def lift(row: Freeze, *, by: User) -> Freeze:
    role, scopes = _required_role(row.cluster)
    require(by, role, scopes, doing="lift this freeze")
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
