"""Writing of change record rules: permission, validation and the record. One rule an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import User
from accounts.permissions import GLOBAL, may, require_person
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, Stale
from jobs.approvals.tickets import patterns
from jobs.models import ChangeRecordRule

FIELDS = ("environment", "pattern", "is_required", "must_release")
DOING = "write change record rules"


def reason_not_to_change(user: User) -> str:
    """Return why this person may not write them; empty when they may."""
    if user.is_service:
        return "A service account cannot write change record rules: people decide them."
    return "" if may(user, "admin", GLOBAL) else "This needs the role admin for all clusters."


@transaction.atomic
def create(*, by: User, **fields: Any) -> ChangeRecordRule:
    """Raises NotAllowed, Invalid naming each field."""
    require_person(by, "admin", GLOBAL, doing=DOING)
    row = ChangeRecordRule(changed_by=by, **_checked(fields))
    _save(row)
    _record(row, by, "create", before=None, after=as_json(row))
    return row


@transaction.atomic
def change(row: ChangeRecordRule, *, by: User, version: int, **fields: Any) -> ChangeRecordRule:
    """Change only the given fields. Plans that wait are judged by it from now on. Raises NotAllowed, Invalid, Stale."""
    require_person(by, "admin", GLOBAL, doing=DOING)
    wanted = _checked(as_json(row) | fields)
    _lock(row, version)
    before = as_json(row)
    changed = ChangeRecordRule(pk=row.pk, version=version + 1, changed_at=now(), changed_by=by, **wanted)
    changed._state.adding = False  # written whole, which makes a row that was changed in the table right again
    _save(changed)
    _record(changed, by, "change", before=before, after=as_json(changed))
    return changed


@transaction.atomic
def delete(row: ChangeRecordRule, *, by: User, version: int) -> None:
    """Raises NotAllowed, Stale."""
    require_person(by, "admin", GLOBAL, doing=DOING)
    _lock(row, version)
    _record(row, by, "delete", before=as_json(row), after=None)
    row.delete()


def as_json(row: ChangeRecordRule) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS}


def _lock(row: ChangeRecordRule, version: int) -> None:
    rows = ChangeRecordRule.objects.select_for_update().filter(pk=row.pk)
    if rows.values_list("version", flat=True).first() != version:
        raise Stale(f"The rule of {row.environment} was changed meanwhile. Reload it and try again.")


def _save(row: ChangeRecordRule) -> None:
    try:
        with transaction.atomic():  # savepoint: judge this one write
            row.save()
    except IntegrityError as error:
        raise Invalid(
            "The rule is not valid.", fields={"environment": ["It has a rule already: change that."]}
        ) from error


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Every field, whole. Raises Invalid with all that is wrong at once."""
    errors: dict[str, list[str]] = {}
    environment, pattern = str(given.get("environment") or ""), str(given.get("pattern") or "").strip()
    if environment not in Cluster.Environment.values:
        errors["environment"] = [f"Must be one of {', '.join(Cluster.Environment.values)}."]
    try:
        patterns.read(pattern)
    except patterns.BadPattern as bad:
        errors["pattern"] = [str(bad)]
    if errors:
        raise Invalid("The rule is not valid.", fields=errors)
    return {
        "environment": environment, "pattern": pattern,
        "is_required": given.get("is_required") is not False, "must_release": given.get("must_release") is True,
    }  # fmt: skip


def _record(row: ChangeRecordRule, by: User, verb: str, *, before: Any, after: Any) -> None:
    audit.record(
        by=by,
        action=f"change-record-rule.{verb}",
        target=f"change-record-rule:{row.pk}",
        target_name=row.environment,
        before=before,
        after=after,
    )
