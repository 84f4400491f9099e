"""Writing of calendar rules: permission, validation and the record. Rules that apply are limited, so is their cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import User
from accounts.permissions import GLOBAL, may, require_person
from audit import services as audit
from clusters.models import Cluster, Pool
from common.clock import now
from common.errors import Invalid, Stale, WrongState
from jobs.calendars import rule_text
from jobs.models import CalendarRule

MOST_RULES = 500
"""That apply at one time: a judgment. Each start of a step reads those of its target."""
FIELDS = (
    "name", "kind", "environment", "cluster", "pool", "starts", "zone", "minutes", "rule", "excluded", "added",
    "whole_days",
)  # fmt: skip


def reason_not_to_change(user: User) -> str:
    """Return why this person may not write calendar rules; empty when they may."""
    if user.is_service:
        return "A service account cannot write calendar rules: people decide them."
    return "" if may(user, "admin", GLOBAL) else "This needs the role admin for all clusters."


def check(fields: Mapping[str, Any]) -> CalendarRule:
    """Return the rule that these fields make, unsaved. Raises Invalid naming each field that is wrong."""
    return CalendarRule(**_checked(fields))


@transaction.atomic
def create(*, by: User, **fields: Any) -> CalendarRule:
    """Raises NotAllowed, Invalid naming each field."""
    require_person(by, "admin", GLOBAL, doing="write calendar rules")
    row = CalendarRule(changed_by=by, **_checked(fields))
    if CalendarRule.objects.in_effect().count() >= MOST_RULES:
        raise Invalid("There are too many rules.", fields={"name": [f"At most {MOST_RULES} rules: end others first."]})
    _save(row)
    _record(row, by, "calendar-rule.create", before=None)
    return row


@transaction.atomic
def change(row: CalendarRule, *, by: User, version: int, **fields: Any) -> CalendarRule:
    """Change only the given fields. Raises NotAllowed, Invalid, Stale, WrongState."""
    require_person(by, "admin", GLOBAL, doing="write calendar rules")
    before = as_json(row)
    wanted = _checked({name: getattr(row, name) for name in FIELDS} | fields)
    _lock(row, version)
    for name, value in wanted.items():
        setattr(row, name, value)
    _put(row, by, version)
    _record(row, by, "calendar-rule.change", before=before)
    return row


@transaction.atomic
def end(row: CalendarRule, *, by: User, version: int) -> CalendarRule:
    """End a rule: it applies no more from now on, and is kept. Raises NotAllowed, Stale, WrongState."""
    require_person(by, "admin", GLOBAL, doing="write calendar rules")
    _lock(row, version)
    row.ended_at = now()
    _put(row, by, version)
    _record(row, by, "calendar-rule.end", before=as_json(row), is_gone=True)
    return row


def as_json(row: CalendarRule) -> dict[str, Any]:
    """Return what the rule says, for the audit record; cluster and pool by their ids."""
    out = {name: getattr(row, name) for name in FIELDS if name not in ("cluster", "pool")}
    return out | {"cluster": str(row.cluster_id) if row.cluster_id else None, "pool": row.pool_id}


def _lock(row: CalendarRule, version: int) -> None:
    current = CalendarRule.objects.select_for_update().filter(pk=row.pk).values_list("version", "ended_at").get()
    if current[1]:
        raise WrongState("This rule has ended: make a new one.")
    if current[0] != version:
        raise Stale(f"The rule “{row.name}” was changed meanwhile. Reload it and try again.")


def _put(row: CalendarRule, by: User, version: int) -> None:
    row.version, row.changed_at, row.changed_by = version + 1, now(), by
    _save(row)


def _save(row: CalendarRule) -> None:
    try:
        with transaction.atomic():  # savepoint: judge this one write
            row.save()
    except IntegrityError as error:  # the unique name
        raise Invalid("The rule is not valid.", fields={"name": ["There is a rule of this name."]}) from error


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Every field, whole. Raises Invalid with all that is wrong at once."""
    errors: dict[str, list[str]] = {}
    name = " ".join(str(given.get("name") or "").split())
    if not 1 <= len(name) <= 80:
        errors["name"] = ["Give it a name of at most 80 characters: rollouts that wait show it."]
    kind = given.get("kind") or ""
    if kind not in CalendarRule.Kind.values:
        errors["kind"] = [f"Must be one of {', '.join(CalendarRule.Kind.values)}."]
    target = _checked_target(given, errors)
    minutes = given.get("minutes")
    if isinstance(minutes, bool) or not isinstance(minutes, int):
        errors["minutes"] = ["Must be a whole number of minutes."]
        minutes = rule_text.LEAST_MINUTES
    texts = {key: str(given.get(key) or "").strip() for key in ("starts", "zone", "rule")}
    texts["rule"] = texts["rule"].upper().removeprefix("RRULE:")
    excluded, added = ([str(text) for text in given.get(key) or ()] for key in ("excluded", "added"))
    whole_days = bool(given.get("whole_days"))
    try:
        rule_text.read(
            texts["starts"],
            texts["zone"],
            minutes,
            texts["rule"],
            tuple(excluded),
            added=tuple(added),
            is_whole_days=whole_days,
        )
    except rule_text.Unreadable as error:
        errors = error.fields | errors
    if errors:
        raise Invalid("The rule is not valid.", fields=errors)
    return {"name": name, "kind": kind, **target, **texts, "minutes": minutes, "excluded": excluded,
            "added": added, "whole_days": whole_days}  # fmt: skip


def _checked_target(given: Mapping[str, Any], errors: dict[str, list[str]]) -> dict[str, Any]:
    environment: str = given.get("environment") or ""
    cluster: Cluster | None = given.get("cluster")
    pool: Pool | None = given.get("pool")
    if environment and environment not in Cluster.Environment.values:
        errors["environment"] = [f"Must be one of {', '.join(Cluster.Environment.values)}, or empty."]
    if pool is not None and cluster is not None and pool.cluster_id != cluster.pk:
        errors["pool"] = [f"{pool} is not of {cluster}: the rule would never apply."]
    of = cluster or (pool.cluster if pool else None)
    if environment and of is not None and of.environment != environment and "environment" not in errors:
        errors["environment"] = [f"{of} is {of.environment}: the rule would never apply."]
    return {"environment": environment, "cluster": cluster, "pool": pool}


def _record(row: CalendarRule, by: User, action: str, *, before: Any, is_gone: bool = False) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"calendar-rule:{row.pk}",
        target_name=row.name,
        cluster_id=row.cluster_id or (row.pool.cluster_id if row.pool else None),
        before=before,
        after=None if is_gone else as_json(row),
    )
