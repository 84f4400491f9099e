"""Calendar rules as pages and REST show them: in words, and with their next occurrences."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster
from common.clock import now
from common.templatetags.setpoint import duration
from jobs.calendars import targets
from jobs.calendars.recurrence import Recurrence
from jobs.models import CalendarRule

SHOWN = 10
"""Occurrences of a preview."""


@dataclass(frozen=True, slots=True)
class OccurrenceShown:
    """One occurrence, as instants and as the rule's zone has them."""

    start: datetime
    end: datetime
    local_start: str
    local_end: str
    is_now: bool


def visible_calendar_rules(user: User) -> QuerySet[CalendarRule]:
    """Those in effect of all clusters, and those of one that this person may see."""
    clusters = restrict(Cluster.objects.all(), user, prefix="")
    rows = CalendarRule.objects.in_effect().filter(Q(cluster=None) | Q(cluster__in=clusters))
    return rows.filter(Q(pool=None) | Q(pool__cluster__in=clusters)).select_related(
        "cluster", "pool__cluster", "changed_by"
    )


def next_occurrences(row: CalendarRule, limit: int = SHOWN) -> list[OccurrenceShown]:
    """Return the occurrences that have not ended, at most `limit`; none of a rule that cannot be read any more."""
    rule = targets.recurrence_of(row)
    if rule is None:
        return []
    at, zone = now(), ZoneInfo(rule.zone)
    return [
        OccurrenceShown(o.start, o.end, _local(o.start, zone), _local(o.end, zone), o.start <= at < o.end)
        for o in rule.following(at, limit)
    ]


def _local(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%a %d %b %Y %H:%M %Z}"


def describe_target(row: CalendarRule) -> str:
    """Name what a rule applies to, as a clause."""
    if row.pool:
        return f"pool {row.pool.name} of {row.pool.cluster.name}"
    if row.cluster:
        return row.cluster.name
    return f"every {row.environment} cluster" if row.environment else "every cluster"


def describe_times(row: CalendarRule) -> str:
    """Say when a rule applies, in words as far as they are plain, else by its RRULE: `weekly on Mon and Fri, 22:00 for
    2 h`.
    """
    rule = targets.recurrence_of(row)
    length = duration(row.minutes * 60)
    if rule is None:
        return "can no longer be read: change it or end it"
    return f"{_repeats(row, rule)}, {rule.start:%H:%M} for {length}"


def _repeats(row: CalendarRule, rule: Recurrence) -> str:
    plain = {"DAILY": "every day", "WEEKLY": f"every {rule.start:%A}"}
    if not rule.frequency:
        return f"once, {rule.start:%a %d %b %Y}"
    if row.rule == f"FREQ={rule.frequency}" and rule.frequency in plain:
        return plain[rule.frequency]
    if rule.frequency == "WEEKLY" and row.rule.startswith("FREQ=WEEKLY;BYDAY=") and row.rule.count(";") == 1:
        monday = datetime(2024, 1, 1)
        return f"every {', '.join(f'{monday + timedelta(days=day):%a}' for _, day in rule.days)}"
    return row.rule
