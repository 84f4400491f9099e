"""Actions on alerts: acknowledge, silence for a while, and undo either. Alerts close by themselves."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from accounts.models import User
from accounts.permissions import Role, require
from audit import services as audit
from common.clock import now
from common.errors import Invalid, Stale, WrongState
from notices.models import Alert

LONGEST_NOTE = 500
LONGEST_SILENCE = timedelta(days=30)


def acknowledge(alert: Alert, *, by: User, note: str = "", version: int | None = None) -> None:
    """Acknowledge an alert, which then no longer waits for attention. Raises NotAllowed, WrongState, Invalid, Stale."""
    _may(alert, by, "acknowledge alerts")
    if alert.status != Alert.Status.OPEN:
        raise WrongState(f"Not possible: {alert} is {alert.get_status_display().lower()}.")
    if alert.acknowledged_at is not None:
        raise WrongState(f"{alert.acknowledged_by} has acknowledged it already.")
    _put(alert, "acknowledge", by, version, note=_checked(note), acknowledged_at=now(), acknowledged_by=str(by)[:150])


def silence(alert: Alert, *, by: User, until: datetime, note: str = "", version: int | None = None) -> None:
    """No notices are sent until then, even if it closes and opens again. Raises as `acknowledge`."""
    _may(alert, by, "silence alerts")
    if alert.status != Alert.Status.OPEN:
        raise WrongState(f"Not possible: {alert} is {alert.get_status_display().lower()}.")
    at = now()
    if not at < until <= at + LONGEST_SILENCE:
        advice = f"Must be in the future, and within {LONGEST_SILENCE.days} days."
        raise Invalid("It cannot be silenced until then.", fields={"until": [advice]})
    _put(alert, "silence", by, version, note=_checked(note), silenced_until=until, silenced_by=str(by)[:150])


def unsilence(alert: Alert, *, by: User, version: int | None = None) -> None:
    """Raises NotAllowed, WrongState, Stale."""
    _may(alert, by, "end silences")
    if not alert.is_silenced:
        raise WrongState(f"Not possible: {alert} is not silenced.")
    _put(alert, "unsilence", by, version, silenced_until=None, silenced_by="")


def _may(alert: Alert, by: User, doing: str) -> None:
    require(by, Role.OPERATOR, alert.cluster.scopes, f"{doing} of {alert.cluster}")


def _checked(note: str) -> str:
    if len(note) > LONGEST_NOTE:
        raise Invalid(
            "The text is too long.", fields={"note": [f"At most {LONGEST_NOTE} characters, not {len(note)}."]}
        )
    return note.strip()


def _put(alert: Alert, verb: str, by: User, version: int | None, **fields: Any) -> None:
    read = alert.version if version is None else version
    with transaction.atomic():
        as_read = Alert.objects.filter(pk=alert.pk, version=read, status=alert.status)
        if not as_read.update(version=read + 1, **fields):
            raise Stale("The alert was changed meanwhile. Reload it and try again.")
        audit.record(
            by=by,
            action=f"alert.{verb}",
            target=f"alert:{alert.pk}",
            target_name=str(alert),
            cluster_id=alert.cluster_id,
            message=str(fields.get("note", "")),
            after={name: value for name, value in fields.items() if name != "note"},
        )
    alert.refresh_from_db()
