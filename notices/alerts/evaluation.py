"""Clusters held against the rules: what opens, what stays, what closes, each only after it has lasted.

The row is the queue. A claim is a conditional update with an end; all that a look writes is written in one transaction
that holds the claim, so that two workers open nothing twice. Unknown is not treated as healthy: alerts
without a reading stay as they were.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce

from clusters.models import Cluster
from common.alerting import AlertCondition, RuleResult, SubjectKind
from common.clock import now
from notices import members
from notices.alerts import rulebook
from notices.alerts.rulebook import EffectiveRule
from notices.channels import routing
from notices.models import Alert, Evaluation

log = logging.getLogger(__name__)

CLAIM = timedelta(seconds=120)
"""For the looks of all rules at one cluster, and their writing."""
GAP = timedelta(minutes=3)
"""Without an evaluation for so long, the duration of a condition is counted from the start again."""
MOST = 1000
"""Live alerts of one rule in one cluster; more would say no more."""
AT_ONCE = 200
BLIND = "This rule failed inside Setpoint; its log says how."
Key = tuple[str, str]


class ClaimLost(Exception):
    """Another party looks now, or the cluster is gone."""


def reconcile() -> None:
    """Each cluster is evaluated; one query where they all are."""
    missing = Cluster.objects.filter(evaluation=None).values_list("pk", flat=True)
    new = [Evaluation(cluster_id=pk) for pk in missing]
    if new:
        Evaluation.objects.bulk_create(new, ignore_conflicts=True)  # another worker may be faster


def due() -> list[UUID]:
    rows = Evaluation.objects.filter(_free(now())).order_by("due_at", "cluster")
    return list(rows.values_list("pk", flat=True)[:AT_ONCE])


def _free(at: datetime) -> Q:
    return Q(claimed_until=None, due_at__lte=at) | Q(claimed_until__lt=at)


def evaluate(cluster_id: UUID) -> bool:
    """Evaluate a cluster's rules if that is due and unclaimed. Returns whether this was the call that wrote."""
    at, started = now(), time.monotonic()
    until = at + CLAIM
    next_ = at + timedelta(seconds=settings.SETPOINT_ALERT_SECONDS)
    if not Evaluation.objects.filter(_free(at), pk=cluster_id).update(claimed_until=until, due_at=next_):
        return False
    holding = rulebook.of_cluster(cluster_id)
    looks, failures = _looks(cluster_id, holding)
    try:
        with transaction.atomic():
            _hold(cluster_id, until)
            apply(cluster_id, holding, looks, at)
            Evaluation.objects.filter(pk=cluster_id).update(
                claimed_until=None,
                looked_at=now(),
                looks=F("looks") + 1,
                failures=F("failures") + failures,
                blind={name: look.blind for name, look in looks.items() if look.blind},
                not_judged={
                    name: [look.not_judged, look.is_unjudged] for name, look in looks.items() if look.not_judged
                },
                milliseconds=round((time.monotonic() - started) * 1000),
            )
    except ClaimLost:
        return False
    return True


def _hold(cluster_id: UUID, until: datetime) -> None:
    """Hold the claim until the transaction ends, so that it cannot be taken away. Raises ClaimLost."""
    mine = Evaluation.objects.select_for_update().filter(pk=cluster_id, claimed_until=until)
    if not list(mine.values_list("pk", flat=True)):
        raise ClaimLost


def _looks(cluster_id: UUID, holding: Sequence[EffectiveRule]) -> tuple[dict[str, RuleResult], int]:
    """Evaluate each enabled rule; one that raises reports nothing, which closes nothing."""
    results, failures = {}, 0
    for rule in holding:
        if not rule.is_enabled:
            continue
        try:
            results[rule.rule.name] = rule.rule.look(cluster_id, rule.threshold or 0.0)
        except Exception:
            log.exception("alert rule %s failed in cluster %s", rule.rule.name, cluster_id)
            results[rule.rule.name] = RuleResult(blind=BLIND)
            failures += 1
    return results, failures


# ── What changes by it ────────────────────────────────────────────────────────────────────────────────────────────────
def apply(cluster_id: UUID, holding: Sequence[EffectiveRule], looks: Mapping[str, RuleResult], at: datetime) -> None:
    """Open and close alerts, in the caller's transaction, which holds the claim, and notify the channels of both."""
    live: dict[str, dict[Key, Alert]] = {}
    rows = Alert.objects.filter(cluster=cluster_id, status__in=Alert.LIVE)
    for alert in rows:
        live.setdefault(alert.rule, {})[alert.subject_kind, alert.subject] = alert
    opened: list[Alert] = []
    closed: list[Alert] = []
    rules = {rule.rule.name: rule for rule in holding}
    for name, known in live.items():
        if name not in looks:  # switched off, or of a room that is no longer there
            closed += _end(list(known.values()), at, Alert.Ending.RULE_OFF)
    for name, look in looks.items():
        if look.is_blind:
            rows.filter(rule=name, is_unknown=False).update(is_unknown=True, well_since=None)
            continue
        seen = _by_subject(look)
        known = live.get(name, {})
        opened += _opened(cluster_id, rules[name], seen, known, at)
        closed += _closed(rules[name], look.unknown, [a for key, a in known.items() if key not in seen], at)
    routing.tell_alerts(cluster_id, opened, closed)


def _by_subject(look: RuleResult) -> dict[Key, AlertCondition]:
    conditions: dict[Key, AlertCondition] = {}
    for condition in look.conditions:
        conditions.setdefault((condition.kind.value, condition.subject[:330]), condition)
    return conditions


def _opened(
    cluster_id: UUID,
    holding: EffectiveRule,
    seen: Mapping[Key, AlertCondition],
    known: Mapping[Key, Alert],
    at: datetime,
) -> list[Alert]:
    """Those that opened now."""
    fresh = [_row(cluster_id, holding, key, condition, at) for key, condition in seen.items() if key not in known]
    if len(fresh) > (room := max(0, MOST - len(known))):
        log.warning("alert rule %s: %d more subjects in %s", holding.rule.name, len(fresh) - room, cluster_id)
        fresh = fresh[:room]
    changed: dict[UUID, Alert] = {}
    same: dict[UUID, Alert] = {}
    for key in seen.keys() & known.keys():
        alert = known[key]
        is_new = alert.status == Alert.Status.PENDING and at - alert.last_seen_at > GAP
        if is_new:
            alert.began_at = alert.opened_at = at
        began = _began(seen[key], alert.began_at, is_open=alert.status == Alert.Status.OPEN)
        is_new, alert.began_at = is_new or began != alert.began_at, began
        (changed if is_new or _differs(alert, seen[key], holding, at) else same)[alert.pk] = alert
        _say(alert, seen[key], holding, at)
        alert.last_seen_at = at
    opened = [
        alert
        for alert in [*fresh, *changed.values(), *same.values()]
        if alert.status == Alert.Status.PENDING and at - alert.began_at >= holding.opens_after
    ]
    _carry_silences(opened)
    for alert in opened:
        alert.status, alert.opened_at = Alert.Status.OPEN, at
        if alert.pk in same and alert.silenced_until:
            changed[alert.pk] = same.pop(alert.pk)
    opening = {alert.pk for alert in opened}
    for alert in changed.values():  # bulk_update takes ten times as long for so many columns
        names = _WRITTEN + _SILENCE if alert.pk in opening else _WRITTEN
        Alert.objects.filter(pk=alert.pk).update(**{name: getattr(alert, name) for name in names})
    begun = [alert.pk for alert in opened if same.pop(alert.pk, None)]
    _put(begun, status=Alert.Status.OPEN, opened_at=at, last_seen_at=at)
    _put(list(same), last_seen_at=at)
    lost = _created(fresh)
    return [alert for alert in opened if alert.pk not in lost]


def _created(fresh: Sequence[Alert]) -> set[UUID]:
    """The keys of those that were not: the claim keeps other looks away, and should it not, the constraint keeps one
    alert, which is the other's."""
    if not fresh:
        return set()
    Alert.objects.bulk_create(fresh, ignore_conflicts=True, batch_size=200)
    keys = {alert.pk for alert in fresh}
    return keys - set(Alert.objects.filter(pk__in=keys).values_list("pk", flat=True))


def _put(keys: Sequence[UUID], **fields: Any) -> None:
    for start in range(0, len(keys), 500):
        Alert.objects.filter(pk__in=keys[start : start + 500]).update(**fields)


_WRITTEN = (
    "subject_name", "node_id", "namespace", "severity", "sentence", "mend", "link", "figures", "members", "status",
    "began_at", "opened_at", "last_seen_at", "well_since", "is_unknown",
)  # fmt: skip
_SILENCE = ("silenced_until", "silenced_by", "note")
"""Carried over when it opens, and a person's to write from then on."""


def _began(condition: AlertCondition, otherwise: datetime, *, is_open: bool = False) -> datetime:
    """Return since when the condition holds: by the app's own record where there is one, else by evaluations.

    An open alert of several began with the first of them, which may have left it.
    """
    since = condition.since or otherwise
    return min(since, otherwise) if condition.members and is_open else since


def _row(cluster_id: UUID, holding: EffectiveRule, key: Key, condition: AlertCondition, at: datetime) -> Alert:
    alert = Alert(
        rule=holding.rule.name,
        cluster_id=cluster_id,
        subject_kind=SubjectKind(key[0]).value,
        subject=key[1],
        began_at=_began(condition, at),
        opened_at=at,
        last_seen_at=at,
    )
    _say(alert, condition, holding, at)
    return alert


def _say(alert: Alert, condition: AlertCondition, holding: EffectiveRule, at: datetime) -> None:
    for name, value in _alert_fields(alert, condition, holding, at).items():
        setattr(alert, name, value)
    alert.well_since, alert.is_unknown = None, False


def _alert_fields(alert: Alert, condition: AlertCondition, holding: EffectiveRule, at: datetime) -> dict[str, object]:
    return {
        "subject_name": condition.name[:330],
        "node_id": condition.node,
        "namespace": condition.namespace[:63],
        # A rule's severity is the worst that it may have: a subject can be less than that, never more.
        "severity": min(condition.severity or holding.severity, holding.severity, key=_rank).value,
        "sentence": condition.sentence.replace("\0", "")[:500],
        "mend": condition.mend[:500],
        "link": condition.link[:500],
        "figures": dict(condition.figures),
        "members": members.merged(alert.members, condition.members, at),
    }


def _rank(severity: str) -> int:
    return ("warning", "critical").index(str(severity))


def _differs(alert: Alert, condition: AlertCondition, holding: EffectiveRule, at: datetime) -> bool:
    if alert.well_since is not None or alert.is_unknown:
        return True
    return any(getattr(alert, name) != value for name, value in _alert_fields(alert, condition, holding, at).items())


def _carry_silences(opened: Sequence[Alert]) -> None:
    """Carry silences over: an alert that reopens within its silence stays silenced until that silence ends."""
    if not opened:
        return
    first = opened[0]
    before = Alert.objects.filter(
        cluster=first.cluster_id, rule=first.rule, status=Alert.Status.CLOSED, silenced_until__gt=now()
    ).order_by("silenced_until", "pk")
    silent = {(row.subject_kind, row.subject): row for row in before}
    for alert in opened:
        if row := silent.get((alert.subject_kind, alert.subject)):
            alert.silenced_until, alert.silenced_by, alert.note = row.silenced_until, row.silenced_by, row.note


def _closed(holding: EffectiveRule, unknown: Collection[str], alerts: Sequence[Alert], at: datetime) -> list[Alert]:
    """Those that closed now. What was pending and is well has never been one."""
    blind = [a for a in alerts if a.subject in unknown and (not a.is_unknown or a.well_since)]
    well = [alert for alert in alerts if alert.subject not in unknown]
    _put([a.pk for a in blind], is_unknown=True, well_since=None)
    _drop([a.pk for a in well if a.status == Alert.Status.PENDING])
    well = [alert for alert in well if alert.status == Alert.Status.OPEN]
    begins = [alert for alert in well if alert.well_since is None]
    for alert in begins:
        alert.well_since, alert.is_unknown = at, False
    ends = [alert for alert in well if alert.well_since and at - alert.well_since >= holding.closes_after]
    _put([alert.pk for alert in begins], well_since=at, is_unknown=False)
    return _end(ends, at, Alert.Ending.WELL)


def _drop(keys: Sequence[UUID]) -> None:
    for start in range(0, len(keys), 500):
        Alert.objects.filter(pk__in=keys[start : start + 500]).delete()


def _end(alerts: Sequence[Alert], at: datetime, ending: Alert.Ending) -> list[Alert]:
    """Closes what is open, and forgets what never was. Returns the former."""
    _drop([alert.pk for alert in alerts if alert.status == Alert.Status.PENDING])
    ended = [alert for alert in alerts if alert.status == Alert.Status.OPEN]
    for alert in ended:
        alert.status, alert.closed_at, alert.ending = Alert.Status.CLOSED, at, ending
        alert.well_since = alert.well_since or at
        alert.is_unknown = False
    over = Coalesce("well_since", Value(at))
    _put(
        [a.pk for a in ended],
        status=Alert.Status.CLOSED,
        closed_at=at,
        ending=ending,
        well_since=over,
        is_unknown=False,
    )
    return ended


def forget() -> int:
    """Closed alerts older than SETPOINT_ALERT_DAYS, in slices. Returns how many."""
    old = now() - timedelta(days=settings.SETPOINT_ALERT_DAYS)
    total = 0
    while keys := list(
        Alert.objects.filter(closed_at__lt=old).order_by("closed_at", "pk").values_list("pk", flat=True)[:500]
    ):
        total += Alert.objects.filter(pk__in=keys).delete()[0]
    return total
