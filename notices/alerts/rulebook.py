"""The rules of alerts as they hold: as a room offers them, or as people set them, everywhere or for one cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q

from accounts.models import User
from accounts.permissions import GLOBAL, Role, may, require
from audit import services as audit
from clusters.models import Cluster
from common import hooks
from common.alerting import AlertRule, Severity
from common.clock import now
from common.errors import Invalid, Missing, Stale
from notices.models import RuleSetting

FIELDS = ("is_enabled", "severity", "threshold", "opens_after", "closes_after")
LONGEST = 7 * 24 * 3600
"""Seconds of `opens_after` and `closes_after`."""


@dataclass(frozen=True, slots=True)
class EffectiveRule:
    """One rule as it holds for one cluster, or everywhere."""

    rule: AlertRule
    is_enabled: bool
    severity: Severity
    threshold: float | None
    opens_after: timedelta
    closes_after: timedelta
    setting: RuleSetting | None = None
    """The row that says so; None: as its room offers it."""

    @property
    def about(self) -> str:
        """Condition under which the rule fires, with its numbers."""
        return self.rule.about.format(limit=self.limit, lasting=_words(self.opens_after))

    @property
    def limit(self) -> str:
        if self.rule.threshold is None or self.threshold is None:
            return ""
        return f"{self.threshold:g} {self.rule.threshold.unit}"


def offered() -> dict[str, AlertRule]:
    """Every rule that a room offers, by name, in their order."""
    in_order = sorted(hooks.alert_rules(), key=lambda rule: (rule.order, rule.name))
    return {rule.name: rule for rule in in_order}


def named(name: str) -> AlertRule:
    """Raises Missing."""
    if rule := offered().get(name):
        return rule
    raise Missing(f"There is no alert rule {name[:40]!r}; there are {', '.join(offered())}.")


def held(rule: AlertRule, settings: Iterable[RuleSetting], cluster_id: UUID | None) -> EffectiveRule:
    """The cluster's own row counts most, then that for everywhere. Both may be among `settings`."""
    mine = {row.cluster_id: row for row in settings if row.rule == rule.name}
    row = mine.get(cluster_id) or mine.get(None)
    if row is None:
        threshold = rule.threshold.default if rule.threshold else None
        return EffectiveRule(rule, True, rule.severity, threshold, rule.opens_after, rule.closes_after)
    seconds = (timedelta(seconds=row.opens_after), timedelta(seconds=row.closes_after))
    threshold = row.threshold if rule.threshold else None
    return EffectiveRule(rule, row.is_enabled, Severity(row.severity), threshold, *seconds, setting=row)


def of_cluster(cluster_id: UUID | None) -> list[EffectiveRule]:
    """One query."""
    settings = list(RuleSetting.objects.filter(Q(cluster=None) | Q(cluster=cluster_id)))
    return [held(rule, settings, cluster_id) for rule in offered().values()]


def setting_of(rule: AlertRule, cluster: Cluster | None) -> RuleSetting:
    """The stored row of exactly this place; where there is none, one of version 0 with what holds there, not saved."""
    rows = list(RuleSetting.objects.filter(Q(cluster=None) | Q(cluster=cluster), rule=rule.name))
    for row in rows:
        if row.cluster_id == (cluster.pk if cluster else None):
            return row
    holds = held(rule, rows, cluster.pk if cluster else None)
    return RuleSetting(
        rule=rule.name,
        cluster=cluster,
        is_enabled=holds.is_enabled,
        severity=holds.severity.value,
        threshold=holds.threshold,
        opens_after=round(holds.opens_after.total_seconds()),
        closes_after=round(holds.closes_after.total_seconds()),
        version=0,
    )


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def scopes_of(cluster: Cluster | None) -> tuple[str, ...]:
    return cluster.scopes if cluster else tuple(GLOBAL)


def may_change(user: User, cluster: Cluster | None) -> bool:
    return may(user, Role.ADMIN, scopes_of(cluster))


def require_change(user: User, cluster: Cluster | None) -> None:
    """Raises NotAllowed."""
    require(user, Role.ADMIN, scopes_of(cluster), f"set up alerts {f'of {cluster}' if cluster else 'everywhere'}")


def change(rule: AlertRule, cluster: Cluster | None, *, by: User, version: int, **fields: Any) -> RuleSetting:
    """`version` 0 where nothing is stored yet. Raises NotAllowed, Invalid, Stale."""
    require_change(by, cluster)
    row = setting_of(rule, cluster)
    before = field_values(row)
    stored = row.version
    for name, value in checked(rule, {name: getattr(row, name) for name in FIELDS} | fields).items():
        setattr(row, name, value)
    values = {name: getattr(row, name) for name in FIELDS}
    values |= {"version": version + 1, "changed_by": str(by)[:150], "changed_at": now()}
    if version != stored:
        raise _stale(rule)
    try:
        with transaction.atomic():
            if version == 0:
                row = RuleSetting.objects.create(rule=rule.name, cluster=cluster, **values)
            elif not RuleSetting.objects.filter(pk=row.pk, version=version).update(**values):
                raise _stale(rule)
            _record("change", rule, cluster, by, before=before, after=field_values(row))
    except IntegrityError as error:  # another request set it for the first time meanwhile
        raise _stale(rule) from error
    row.refresh_from_db()
    return row


def reset(rule: AlertRule, cluster: Cluster | None, *, by: User, version: int) -> None:
    """Back to what holds everywhere, or to what the room offers. Raises NotAllowed, Stale, Missing."""
    require_change(by, cluster)
    row = setting_of(rule, cluster)
    if row.version == 0:
        raise Missing("Nothing is set here: it is as it is everywhere.")
    with transaction.atomic():
        count, _ = RuleSetting.objects.filter(pk=row.pk, version=version).delete()
        if not count:
            raise _stale(rule)
        _record("reset", rule, cluster, by, before=field_values(row), after=None)


def _stale(rule: AlertRule) -> Stale:
    return Stale(f"The alert rule {rule.name} was changed meanwhile. Reload it and try again.")


def field_values(row: RuleSetting) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS}


def _record(
    verb: str,
    rule: AlertRule,
    cluster: Cluster | None,
    by: User,
    *,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    audit.record(
        by=by,
        action=f"alert-rule.{verb}",
        target=f"alert-rule:{rule.name}",
        target_name=rule.name,
        cluster_id=cluster.pk if cluster else None,
        before=before,
        after=after,
    )


def checked(rule: AlertRule, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every field. Raises Invalid with all that is wrong at once."""
    wrong: dict[str, list[str]] = {}
    severity = str(given["severity"])
    if severity not in tuple(Severity):
        wrong["severity"] = [f"Must be one of {', '.join(Severity)}."]
    threshold, limits = given["threshold"], rule.threshold
    if limits is None and threshold is not None:
        wrong["threshold"] = ["This rule has none."]
    elif limits is not None and not _is_within(threshold, limits.least, limits.most):
        wrong["threshold"] = [f"Must be from {limits.least:g} to {limits.most:g} {limits.unit}."]
    for name in ("opens_after", "closes_after"):
        if not isinstance(given[name], int) or isinstance(given[name], bool) or not 0 <= given[name] <= LONGEST:
            wrong[name] = [f"Seconds, from 0 to {LONGEST:,}."]
    if wrong:
        raise Invalid(f"The alert rule cannot be set so: {', '.join(wrong)}.", fields=wrong)
    return {name: given[name] for name in FIELDS} | {"severity": severity, "is_enabled": bool(given["is_enabled"])}


def _is_within(value: Any, least: float, most: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and least <= value <= most


def _words(lasting: timedelta) -> str:
    """` for 30 minutes`, or nothing: for a sentence that says how long."""
    seconds = round(lasting.total_seconds())
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds and seconds % size == 0:
            return f" for {seconds // size:,} {word}{'' if seconds == size else 's'}"
    return ""
