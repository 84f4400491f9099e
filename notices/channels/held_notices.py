"""Notices that a channel's quiet hours hold back, and what becomes of them once those are over.

Alerts are held as the ids of those that opened and closed: what opened and ended within the quiet hours is news to no
one in the morning, and what is still open is written with its state of then. Everything else waits as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from clusters.models import Cluster
from common.clock import now
from notices.channels import bodies, quiet_hours, subscriptions
from notices.models import Alert, Channel, Delivery

Status = Delivery.Status


def hold(channel: Channel, cluster: Cluster, opened: Sequence[Alert], closed: Sequence[Alert], until: datetime) -> None:
    """Add alerts to the notice of this cluster that the channel holds, or begin one. In the caller's transaction."""
    if not opened and not closed:
        return
    rows = _held(channel).select_for_update()
    held = rows.filter(held_alerts__cluster=str(cluster.pk)).order_by("created_at", "pk").first()
    if held is None:
        held = Delivery(channel=channel, event=Channel.What.ALERTS, due_at=until, is_held=True)
        held.held_alerts = {"cluster": str(cluster.pk), "opened": [], "closed": []}
    begun = dict.fromkeys([*held.held_alerts["opened"], *(str(alert.pk) for alert in opened)])
    over = [str(alert.pk) for alert in closed]
    ended = [*held.held_alerts["closed"], *(pk for pk in over if pk not in begun)]
    begun = {pk: None for pk in begun if pk not in {*over}}
    held.held_alerts = {"cluster": str(cluster.pk), "opened": [*begun], "closed": ended}
    held.title = bodies.shortened(f"{cluster}: {len(begun):,} opened, {len(ended):,} closed, held in quiet hours")
    held.body = {"event": held.event, "title": held.title}
    held.save()


def release(channel: Channel) -> None:
    """Write what this channel held and is due now. A second worker that does the same finds nothing left."""
    for pk in list(_held(channel).filter(due_at__lte=now()).values_list("pk", flat=True)):
        with transaction.atomic():
            held = Delivery.objects.select_for_update().filter(pk=pk, is_held=True).first()
            if held is not None:
                _write(channel, held)


def release_now(delivery: Delivery) -> None:
    """Write one notice before its time, if it is held. In the caller's transaction."""
    held = Delivery.objects.select_for_update().filter(pk=delivery.pk, is_held=True).first()
    if held is not None:
        _write(delivery.channel, held)


def reschedule(channel: Channel) -> None:
    """Let what is held follow the channel's quiet hours as they are now. In the caller's transaction."""
    at = now()
    _held(channel).update(due_at=quiet_hours.ends(channel, at) or at)


def _held(channel: Channel) -> QuerySet[Delivery]:
    return Delivery.objects.filter(channel=channel, status=Status.WAITING, is_held=True)


def _write(channel: Channel, held: Delivery) -> None:
    """Make a delivery of a held row, or mark it as over where nothing of it is left to say."""
    held.is_held, held.created_at = False, now()  # tries last a day from here
    if held.held_alerts:
        alerts = Alert.objects.in_bulk([*held.held_alerts["opened"], *held.held_alerts["closed"]])
        wanted = [a for a in alerts.values() if not a.is_silenced and subscriptions.wants(channel, a)]
        began = {*held.held_alerts["opened"]}
        opened = [a for a in wanted if str(a.pk) in began and a.status == Alert.Status.OPEN]
        closed = [a for a in wanted if str(a.pk) not in began]
        cluster = Cluster.objects.filter(pk=held.held_alerts["cluster"]).first()
        if cluster is not None and (opened or closed):
            held.title = bodies.shortened(bodies.alerts_title(cluster, opened, closed))
            held.body = {"event": held.event, "title": held.title, **bodies.alerts_body(cluster, opened, closed)}
        else:
            held.status = Status.OVER
        held.held_alerts = {}
    held.save(update_fields=["is_held", "held_alerts", "title", "body", "status", "created_at"])
