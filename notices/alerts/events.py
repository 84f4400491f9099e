"""Events of users and rollouts that are worth a notice, read from the audit record by cursor.

The sealed chain is read in its own order, so that no record is missed or told twice, however late it was committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from django.urls import reverse

from audit.models import Chain, Record
from clusters.models import Cluster
from jobs.models import Plan, Rollout
from notices.channels import bodies, routing, subscriptions
from notices.models import Channel, Cursor

What = Channel.What
AT_ONCE = 500
TOLD: Mapping[str, tuple[Channel.What, str]] = {
    "plan.request": (What.APPROVALS, "waits for approval"),
    "plan.remind": (What.APPROVALS, "still waits for approval"),
    "audit.refuse": (What.APPROVALS, "were refused by the audit sealer"),
    "audit.forward-failing": (What.APPROVALS, "does not accept audit records"),
    "audit.forward-resumed": (What.APPROVALS, "accepts audit records again"),
    "change.propose": (What.APPROVALS, "waits for a second administrator's consent"),
    "change.consent": (What.APPROVALS, "was consented to by a second administrator"),
    "user.reset-password": (What.APPROVALS, "gets a new password"),
    "second-factor.reset": (What.APPROVALS, "logs in without the second factor from now on"),
    "role.grant": (What.APPROVALS, "has a new role"),
    "rollout.break-glass": (What.APPROVALS, "was started by break-glass, without approval,"),
    "rollout.break-glass-review": (What.APPROVALS, "has a review of its start by break-glass"),
    "rollout.break-glass-overdue": (What.APPROVALS, "lacks the review of its start by break-glass"),
    "rollout.failed": (What.ROLLOUTS, "failed"),
    "rollout.pause": (What.ROLLOUTS, "was paused"),
    "rollout.ticket-hold": (What.ROLLOUTS, "is held by its change record"),
    "rollout.ticket-release": (What.ROLLOUTS, "is held no more by its change record"),
    "rollout.abort": (What.ROLLOUTS, "is being aborted"),
    "rollout.cancelled": (What.ROLLOUTS, "was aborted"),
    "rollout.succeeded": (What.DONE, "succeeded"),
    "rollout.reverted": (What.DONE, "was reverted"),
}
"""By audit action: what kind of notice it is, and what it says after the object's name."""
TO_EVERY_CHANNEL: Mapping[str, str] = dict.fromkeys(
    ("rollout.break-glass", "rollout.break-glass-review", "rollout.break-glass-overdue"), "break-glass"
)
"""Actions that every channel of the cluster is sent, regardless of its subscription, and their event there."""
_PLANS = ("plan", "rollout")
"""Kinds of targets that have a change record."""
_NUMBER = re.compile(r"[PR]-([0-9]{1,9})")


def read() -> int:
    """Makes deliveries of what was recorded since the last time. Returns how many records were read.

    The first time it begins with the next event: the past is not reported.
    """
    head = Chain.objects.aggregate(seq=Max("seq"))["seq"] or 0
    cursor, is_new = Cursor.objects.get_or_create(defaults={"seq": head}, pk=1)
    if is_new:
        return 0
    records = list(Record.objects.sealed().filter(sealed_as__seq__gt=cursor.seq)[:AT_ONCE])
    if not records:
        return 0
    with transaction.atomic():
        if not Cursor.objects.filter(pk=1, seq=cursor.seq).update(seq=records[-1].seq):
            return 0  # another worker read them
        _tell([record for record in records if record.action in TOLD])
    return len(records)


def _tell(records: Iterable[Record]) -> None:
    records = list(records)
    clusters = Cluster.objects.in_bulk({record.cluster_id for record in records if record.cluster_id})
    tickets = _change_records(records)
    for record in records:
        what, words = TOLD[record.action]
        cluster = clusters.get(record.cluster_id) if record.cluster_id else None
        title = f"{record.target_name or record.target} {words}{f' in {cluster}' if cluster else ''}"
        event = TO_EVERY_CHANNEL.get(record.action)
        body = _of_ticket(tickets, record)
        for channel in _every_channel(cluster) if event else subscriptions.hearing(what, cluster):
            routing.queue(channel, event or what, title, _body(record, cluster) | body, is_urgent=bool(event))


def _every_channel(cluster: Cluster | None) -> list[Channel]:
    """Return the channels of a cluster but PagerDuty's: incidents are of alerts, such as `break-glass-overdue`."""
    return [channel for channel in subscriptions.covering(cluster) if channel.kind != Channel.Kind.PAGERDUTY]


def _body(record: Record, cluster: Cluster | None) -> dict[str, object]:
    return {
        "action": record.action,
        "target": record.target,
        "name": record.target_name,
        "by": record.actor,
        "message": record.message,
        "at": record.at.isoformat(),
        "cluster": bodies.cluster_fields(cluster) if cluster else None,
        "link": _link(record),
    }


def _change_records(records: Iterable[Record]) -> dict[str, str]:
    """Return, by target, the change record of each plan and rollout that has one. Two queries at most."""
    out: dict[str, str] = {}
    ids = {kind: list(_ids(records, kind)) for kind in _PLANS}
    if ids["plan"]:
        plans = Plan.objects.filter(pk__in=ids["plan"]).exclude(change_record="")
        out |= {f"plan:{pk}": text for pk, text in plans.values_list("pk", "change_record")}
    if ids["rollout"]:
        rollouts = Rollout.objects.filter(pk__in=ids["rollout"]).exclude(plan__change_record="")
        out |= {f"rollout:{pk}": text for pk, text in rollouts.values_list("pk", "plan__change_record")}
    return out


def _ids(records: Iterable[Record], kind: str) -> Iterator[UUID]:
    for record in records:
        target, _, pk = record.target.partition(":")
        with suppress(ValueError):  # a record says what its writer gave it
            if target == kind:
                yield UUID(pk)


def _of_ticket(tickets: Mapping[str, str], record: Record) -> dict[str, object]:
    """Events of plans and rollouts carry `change_record`, empty where there is none."""
    is_of_plan = record.target.partition(":")[0] in _PLANS
    return {"change_record": tickets.get(record.target, "")} if is_of_plan else {}


def _link(record: Record) -> str:
    match = _NUMBER.fullmatch(record.target_name)
    page = {"plan": "jobs:plan", "rollout": "jobs:rollout"}.get(record.target.partition(":")[0])
    return bodies.absolute(reverse(page, args=[int(match[1])])) if match and page else ""
