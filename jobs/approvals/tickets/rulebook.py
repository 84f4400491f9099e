"""Writing of change record rules: permission, validation and the record. One rule an environment.

A rule that would ask for less waits for a second administrator's consent, as an approval rule does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import PendingChange, User
from accounts.people import bootstrap, pending
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, may, require_person
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, Stale, WrongState
from jobs.approvals.tickets import patterns
from jobs.models import ChangeRecordRule

FIELDS = ("environment", "pattern", "is_required", "must_release")
DOING = "write change record rules"
WEAKEN = "change-record-rule.weaken"


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
def change(row: ChangeRecordRule, *, by: User, version: int, **fields: Any) -> ChangeRecordRule | Proposed:
    """Change only the given fields. Plans that wait are judged by it from now on. Raises NotAllowed, Invalid, Stale.

    A change by which some plan could start with less waits for consent.
    """
    require_person(by, "admin", GLOBAL, doing=DOING)
    wanted = _checked(as_json(row) | fields)
    _lock(row, version)
    if is_weaker(row, wanted) and not bootstrap.needs_no_consent(by):
        about = (
            f"Plans of {row.environment} need less: {_describe(row)} becomes {_describe(ChangeRecordRule(**wanted))}."
        )
        return _propose(row, by, about, {name: wanted[name] for name in FIELDS if wanted[name] != getattr(row, name)})
    return _change(row, by, version, wanted)


def is_weaker(row: ChangeRecordRule, wanted: Mapping[str, Any] | None) -> bool:
    """Return whether some plan could start with less; `wanted` None: the rule is deleted.

    Another form may accept what this one refuses, and another environment leaves this one without a rule.
    """
    if not _asks(row):
        return False
    if wanted is None or wanted["environment"] != row.environment or wanted["pattern"] != row.pattern:
        return True
    return not _asks(ChangeRecordRule(**wanted)) or (row.must_release and not wanted["must_release"])


def _asks(row: ChangeRecordRule) -> bool:
    return row.is_required or row.must_release


def _describe(row: ChangeRecordRule) -> str:
    if not _asks(row):
        return "nothing"
    return f"a reference of the form {row.pattern} in {row.environment}" + (", released" if row.must_release else "")


def _change(row: ChangeRecordRule, by: User, version: int, wanted: Mapping[str, Any]) -> ChangeRecordRule:
    before = as_json(row)
    changed = ChangeRecordRule(pk=row.pk, version=version + 1, changed_at=now(), changed_by=by, **wanted)
    changed._state.adding = False  # written whole, which makes a row that was changed in the table right again
    _save(changed)
    _record(changed, by, "change", before=before, after=as_json(changed))
    return changed


@transaction.atomic
def delete(row: ChangeRecordRule, *, by: User, version: int) -> Proposed | None:
    """Delete it; one that asks for something waits for consent. Raises NotAllowed, Stale."""
    require_person(by, "admin", GLOBAL, doing=DOING)
    _lock(row, version)
    if is_weaker(row, None) and not bootstrap.needs_no_consent(by):
        about = f"Plans of {row.environment} need no change record: {_describe(row)} is no longer required."
        return _propose(row, by, about, None)
    _delete(row, by)
    return None


def _delete(row: ChangeRecordRule, by: User) -> None:
    _record(row, by, "delete", before=as_json(row), after=None)
    row.delete()


def _propose(row: ChangeRecordRule, by: User, about: str, changes: Mapping[str, Any] | None) -> Proposed:
    """`changes` None: it is deleted."""
    wanted = {"version": row.version, "changes": None if changes is None else dict(changes)}
    return pending.propose(kind=WEAKEN, by=by, about=about, target=f"change-record-rule:{row.pk}", wanted=wanted)


def _consented(change: PendingChange, by: User) -> None:
    """Apply a proposed change to the very version that it was proposed for. Raises Stale, Invalid."""
    row = ChangeRecordRule.objects.filter(pk=int(change.target.rpartition(":")[2])).first()
    if row is None:
        raise WrongState("The rule no longer exists: refuse this change.")
    version, changes = change.wanted["version"], change.wanted["changes"]
    _lock(row, version)
    if changes is None:
        _delete(row, by)
    else:
        _change(row, by, version, _checked(as_json(row) | changes))


pending.KINDS[WEAKEN] = _consented


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
