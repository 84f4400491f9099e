"""Routing of notices to channels: notices become delivery rows, which are sent later. No network here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from clusters.models import Cluster
from common.alerting import Severity
from common.clock import now
from notices.channels import bodies, held_notices, incidents, quiet_hours, subscriptions
from notices.models import Alert, Channel, Delivery


def tell_alerts(cluster_id: UUID, opened: Sequence[Alert], closed: Sequence[Alert]) -> None:
    """One delivery a channel for all that changed at one look: a rack that fails is one notice, not a hundred.

    Where alerts become incidents, every one has to be sent, in several deliveries if need be, and the end also of
    those that were silenced since: their incidents would stay open. In a channel's quiet hours all but critical ones
    are held, and make one notice of the cluster once they are over.
    """
    if not opened and not closed:
        return
    cluster = Cluster.objects.get(pk=cluster_id)
    for channel in subscriptions.hearing(Channel.What.ALERTS, cluster):
        is_incident = channel.kind == Channel.Kind.PAGERDUTY
        new = [alert for alert in opened if subscriptions.wants(channel, alert) and not alert.is_silenced]
        over = [
            alert for alert in closed if subscriptions.wants(channel, alert) and (is_incident or not alert.is_silenced)
        ]
        if until := quiet_hours.ends(channel, now()):
            held_notices.hold(
                channel, cluster, [a for a in new if not _urgent(a)], [a for a in over if not _urgent(a)], until
            )
            new, over = [a for a in new if _urgent(a)], [a for a in over if _urgent(a)]
        at_once = incidents.AT_ONCE if is_incident else max(len(new), len(over), 1)
        for start in range(0, max(len(new), len(over)), at_once):
            begun, ended = (alerts[start : start + at_once] for alerts in (new, over))
            title = bodies.alerts_title(cluster, begun, ended)
            queue(channel, Channel.What.ALERTS, title, bodies.alerts_body(cluster, begun, ended), is_urgent=True)


def _urgent(alert: Alert) -> bool:
    return alert.severity == Severity.CRITICAL


def queue(
    channel: Channel,
    event: str,
    title: str,
    body: Mapping[str, Any],
    at: datetime | None = None,
    *,
    is_urgent: bool = False,
) -> Delivery:
    """Make a delivery, due at `at` or now; in the channel's quiet hours at their end, unless it is urgent."""
    due_at = at or now()
    until = None if is_urgent else quiet_hours.ends(channel, due_at)
    return Delivery.objects.create(
        channel=channel,
        event=event,
        title=bodies.shortened(title),
        body={"event": event, "title": bodies.shortened(title), **body},
        due_at=until or due_at,
        is_held=until is not None,
    )
