"""Deliveries that are due: claims, retry times after a failure, and the end of retries.

The rows are the queue, one for each channel: the longest waiting goes first, and a channel whose receiver is dead rests
alone. A claim is a conditional update with an end; a worker killed in the middle costs one claim, and the notice may
then arrive twice, under the same id. No network call is made in a transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q

from common.clock import now
from notices.channels import chats, held_notices, incidents, mails, webhooks
from notices.channels.posting import Undelivered
from notices.models import Channel, Delivery

log = logging.getLogger(__name__)

SLICE_SECONDS = 45.0
"""Nothing more is begun after this; one more try may then take `posting.SECONDS`."""
CLAIM = timedelta(seconds=120)
AT_ONCE = 200
"""Channels, and deliveries of one slice."""
GIVE_UP_AFTER = timedelta(hours=24)
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(hours=1)
LONGEST_REST = timedelta(minutes=5)


def backoff(tries: int) -> timedelta:
    """Wait after failed try number `tries`, counted from 1: 10 s, doubling, at most an hour."""
    doublings: int = min(max(tries, 1) - 1, 12)
    return min(FIRST_WAIT * float(2**doublings), LONGEST_WAIT)


def due() -> list[UUID]:
    """Channels with something to send now."""
    at = now()
    waiting = Delivery.objects.filter(channel=OuterRef("pk"), status=Delivery.Status.WAITING, due_at__lte=at)
    rows = Channel.objects.filter(_free(at), Exists(waiting)).order_by("rests_until", "pk")
    return list(rows.values_list("pk", flat=True)[:AT_ONCE])


def _free(at: datetime) -> Q:
    unclaimed = Q(claimed_until=None) | Q(claimed_until__lt=at)
    return unclaimed & (Q(rests_until=None) | Q(rests_until__lte=at)) & Q(is_enabled=True)


def deliver(channel_id: UUID) -> int:
    """Deliver one slice of one unclaimed channel, until a delivery fails. Returns how many arrived."""
    at = now()
    until = at + CLAIM
    if not Channel.objects.filter(_free(at), pk=channel_id).update(claimed_until=until):
        return 0
    channel = Channel.objects.get(pk=channel_id)
    begun, sent = time.monotonic(), 0
    try:
        held_notices.release(channel)
        for delivery in _waiting(channel, at):
            if time.monotonic() - begun > SLICE_SECONDS or not _still(channel, until):
                break
            if not attempt(channel, delivery):
                break
            sent += 1
    finally:
        Channel.objects.filter(pk=channel_id, claimed_until=until).update(claimed_until=None)
    return sent


def _waiting(channel: Channel, at: datetime) -> Sequence[Delivery]:
    rows = Delivery.objects.filter(channel=channel, status=Delivery.Status.WAITING, is_held=False, due_at__lte=at)
    return list(rows.order_by("due_at", "created_at", "pk")[:AT_ONCE])


def _still(channel: Channel, until: datetime) -> bool:
    """Return whether the claim holds and the channel was neither changed nor switched off since it was read."""
    return Channel.objects.filter(pk=channel.pk, claimed_until=until, version=channel.version, is_enabled=True).exists()


def attempt(channel: Channel, delivery: Delivery) -> bool:
    """Sends it once and writes down how that went. Returns whether it arrived."""
    try:
        transmit(channel, delivery)
    except Undelivered as error:
        _failed(channel, delivery, str(error))
        return False
    except Exception:
        log.exception("sending %s failed", delivery.pk)
        _failed(channel, delivery, "Setpoint itself failed while it sent this; its log says how.")
        return False
    at = now()
    Delivery.objects.filter(pk=delivery.pk).update(
        status=Delivery.Status.SENT, sent_at=at, tried_at=at, tries=F("tries") + 1, error=""
    )
    Channel.objects.filter(pk=channel.pk).update(failures=0, failing_since=None, error="", sent_at=at, rests_until=None)
    return True


def transmit(channel: Channel, delivery: Delivery) -> None:
    """Raises Undelivered."""
    if channel.kind == Channel.Kind.MAIL:
        mails.send(channel, delivery)
    elif channel.kind in chats.FORMATS:
        chats.send(channel, delivery)
    elif channel.kind == Channel.Kind.PAGERDUTY:
        incidents.send(channel, delivery)
    else:
        webhooks.send(channel, delivery, now())


def _failed(channel: Channel, delivery: Delivery, error: str) -> None:
    at, error = now(), error.replace("\0", "")[:500]
    Delivery.objects.filter(pk=delivery.pk, status=Delivery.Status.WAITING).update(
        tries=F("tries") + 1, tried_at=at, error=error, due_at=at + backoff(delivery.tries + 1)
    )
    Channel.objects.filter(pk=channel.pk).update(
        failures=F("failures") + 1,
        failing_since=channel.failing_since or at,
        error=error,
        rests_until=at + min(backoff(channel.failures + 1), LONGEST_REST),
    )


def give_up() -> int:
    """Give up deliveries that have waited for a day, also of a disabled channel. Returns how many.

    Quiet hours may last longer: what they held has a day from their end.
    """
    old = now() - GIVE_UP_AFTER
    rows = Delivery.objects.filter(status=Delivery.Status.WAITING, created_at__lt=old)
    return rows.exclude(due_at__gt=old, is_held=True).update(status=Delivery.Status.GIVEN_UP)


def forget() -> int:
    """Deliveries that are over, older than SETPOINT_DELIVERY_DAYS, in slices. Returns how many."""
    old, total = now() - timedelta(days=settings.SETPOINT_DELIVERY_DAYS), 0
    over = Delivery.objects.exclude(status=Delivery.Status.WAITING).filter(created_at__lt=old)
    rows = over.order_by("created_at", "pk")
    while keys := list(rows.values_list("pk", flat=True)[:500]):
        total += Delivery.objects.filter(pk__in=keys).delete()[0]
    return total
