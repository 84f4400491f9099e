"""Events of users and rollouts that are worth a notice, read from the audit record by cursor.

The sealed chain is read in its own order, so that no record is missed or told twice, however late it was committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from django.db import transaction
from django.db.models import Max
from django.urls import reverse

from audit.models import Chain, Record
from clusters.models import Cluster
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
    for record in records:
        what, words = TOLD[record.action]
        cluster = clusters.get(record.cluster_id) if record.cluster_id else None
        title = f"{record.target_name or record.target} {words}{f' in {cluster}' if cluster else ''}"
        event = TO_EVERY_CHANNEL.get(record.action)
        for channel in _every_channel(cluster) if event else subscriptions.hearing(what, cluster):
            routing.queue(channel, event or what, title, _body(record, cluster), is_urgent=bool(event))


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


def _link(record: Record) -> str:
    match = _NUMBER.fullmatch(record.target_name)
    page = {"plan": "jobs:plan", "rollout": "jobs:rollout"}.get(record.target.partition(":")[0])
    return bodies.absolute(reverse(page, args=[int(match[1])])) if match and page else ""
