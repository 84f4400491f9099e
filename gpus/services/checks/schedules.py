"""Schedules of checks as operators make, change and delete them: judged, allowed and recorded in one place."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts import permissions
from accounts.models import User
from accounts.permissions import ANYWHERE, Role, restrict
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, Stale
from gpus.models import CheckRun, CheckSchedule
from gpus.services.checks.catalog import CHECKS

REFUSED = "The schedule cannot be saved so."
STALE = "This schedule was changed meanwhile. Reload and try again."


def visible_to(user: User) -> QuerySet[CheckSchedule]:
    return restrict(CheckSchedule.objects.select_related("cluster"), user)


def title(schedule: CheckSchedule) -> str:
    return CHECKS[schedule.check_name].title if schedule.check_name in CHECKS else schedule.check_name


def may_change(user: User, schedule: CheckSchedule) -> bool:
    return permissions.may(user, Role.OPERATOR, schedule.cluster.scopes)


def require_change_anywhere(user: User) -> None:
    """Raises NotAllowed where this person may schedule checks in no cluster."""
    permissions.require(user, Role.OPERATOR, ANYWHERE, "schedule a check")


def clusters_of(user: User) -> QuerySet[Cluster]:
    """Select the clusters in which this person may schedule checks."""
    return restrict(Cluster.objects.order_by("name"), user, prefix="", role=Role.OPERATOR)


def require_change(user: User, cluster: Cluster) -> None:
    """Raises NotAllowed."""
    permissions.require(user, Role.OPERATOR, cluster.scopes, f"schedule a check in {cluster}")


def add(check_name: str, cluster: Cluster, *, every_days: int, at_once: int, by: User) -> CheckSchedule:
    """Raises NotAllowed, Invalid."""
    require_change(by, cluster)
    person = audit.actor_of(by)[:200]
    row = CheckSchedule(
        cluster=cluster,
        check_name=check_name,
        every_days=every_days,
        at_once=at_once,
        created_by=person,
        changed_by=person,
    )
    _judge(row)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            audit.record(by=by, action="check_schedule.add", **_subject(row), after=fields_of(row))
    except IntegrityError as error:
        taken = f"{cluster} has a schedule of this check already: change that one."
        raise Invalid(REFUSED, fields={"check_name": [taken]}) from error
    return row


def change(schedule: CheckSchedule, *, every_days: int, at_once: int, version: int, by: User) -> CheckSchedule:
    """Change the version that the caller saw. Raises NotAllowed, Invalid, Stale."""
    require_change(by, schedule.cluster)
    if version == schedule.version and (every_days, at_once) == (schedule.every_days, schedule.at_once):
        return schedule
    before = fields_of(schedule)
    schedule.every_days, schedule.at_once = every_days, at_once
    _judge(schedule)
    fields = {"every_days": every_days, "at_once": at_once, "version": version + 1}
    with transaction.atomic():
        as_read = CheckSchedule.objects.filter(pk=schedule.pk, version=version)
        if not as_read.update(**fields, changed_at=now(), changed_by=audit.actor_of(by)[:200]):
            raise Stale(STALE)
        audit.record(
            by=by, action="check_schedule.change", **_subject(schedule), before=before, after=fields_of(schedule)
        )
    schedule.refresh_from_db()
    return schedule


def remove(schedule: CheckSchedule, *, version: int, by: User) -> None:
    """Delete the version that the caller saw. Its runs that wait are stopped; those on a node end by themselves.

    Raises NotAllowed, Stale.
    """
    require_change(by, schedule.cluster)
    with transaction.atomic():
        as_read = CheckSchedule.objects.select_for_update().filter(pk=schedule.pk, version=version)
        if not as_read.exists():
            raise Stale(STALE)
        waiting = CheckRun.objects.filter(schedule=schedule, status=CheckRun.Status.WAITING, stopped_by="")
        waiting.update(stopped_by=audit.actor_of(by)[:200], not_before=None)
        audit.record(by=by, action="check_schedule.remove", **_subject(schedule), before=fields_of(schedule))
        as_read.delete()


def fields_of(schedule: CheckSchedule) -> dict[str, Any]:
    names = ("check_name", "every_days", "at_once")
    return {"cluster": schedule.cluster.name} | {name: getattr(schedule, name) for name in names}


def _judge(schedule: CheckSchedule) -> None:
    wrong = {}
    if schedule.check_name not in CHECKS:
        wrong["check_name"] = [f"There is no check {schedule.check_name[:60]}. There are {', '.join(CHECKS)}."]
    days, most = schedule.every_days, schedule.MOST_DAYS
    if not _is_whole(days) or not schedule.LEAST_DAYS <= days <= most:
        wrong["every_days"] = [f"A whole number of days, {schedule.LEAST_DAYS} to {most}."]
    if not _is_whole(schedule.at_once) or not 1 <= schedule.at_once <= schedule.MOST_AT_ONCE:
        wrong["at_once"] = [f"A whole number of nodes, 1 to {schedule.MOST_AT_ONCE}."]
    if wrong:
        raise Invalid(REFUSED, fields=wrong)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _subject(schedule: CheckSchedule) -> dict[str, Any]:
    return {
        "target": f"check_schedule:{schedule.pk}",
        "target_name": f"{title(schedule)} in {schedule.cluster}"[:200],
        "cluster_id": schedule.cluster_id,
    }
