"""Celery is an alarm clock: clusters to evaluate, notices to send. Ids in, one short slice; twice does no harm."""

from __future__ import annotations

import threading
from uuid import UUID

from celery import shared_task

from notices.alerts import digests, evaluation, events
from notices.channels import audit_heads, deliveries
from notices.forwarding import shipping

TICK_SECONDS = 5.0
SENDING_AT_ONCE = 2
"""In one process. A receiver that does not answer holds a thread for seconds, and steps must not wait for it."""
sending = threading.BoundedSemaphore(SENDING_AT_ONCE)
forwarding = threading.BoundedSemaphore(SENDING_AT_ONCE)
"""Apart from notices: a receiver of the record that is away must not keep an alert from being sent."""


@shared_task(ignore_result=True)
def tick() -> None:
    """Beat, every 5 s: clusters that are due are held against the rules, each every SETPOINT_ALERT_SECONDS."""
    evaluation.reconcile()
    for pk in evaluation.due():
        evaluate.apply_async((str(pk),), expires=TICK_SECONDS)


@shared_task(ignore_result=True)
def evaluate(cluster_id: str) -> None:
    evaluation.evaluate(UUID(cluster_id))


@shared_task(ignore_result=True)
def notice() -> None:
    """Beat, every 5 s: what was recorded becomes notices, and channels with something to send send it."""
    events.read()
    for pk in deliveries.due():
        send.apply_async((str(pk),), expires=TICK_SECONDS)


@shared_task(ignore_result=True)
def send(channel_id: str) -> None:
    """One channel. More than this process may do at once are dropped: the rows are due still."""
    if not sending.acquire(blocking=False):
        return
    try:
        deliveries.deliver(UUID(channel_id))
    finally:
        sending.release()


@shared_task(ignore_result=True)
def digest() -> None:
    """Beat, every 5 minutes: channels whose hour has come."""
    digests.send_due()


@shared_task(ignore_result=True)
def forget() -> None:
    """Beat, every 10 minutes."""
    deliveries.give_up()
    deliveries.forget()
    evaluation.forget()


@shared_task(ignore_result=True)
def ship_audit_head() -> None:
    """Beat, every minute: the head of the audit record goes to its receiver, where one is set up."""
    audit_heads.ship()


@shared_task(ignore_result=True)
def forward_audit() -> None:
    """Beat, every 5 s: sealed audit records go to the destinations that have not had them."""
    for name in shipping.due():
        forward.apply_async((name,), expires=TICK_SECONDS)


@shared_task(ignore_result=True)
def forward(name: str) -> None:
    """One destination. More than this process may do at once are dropped: the rows are due still."""
    if not forwarding.acquire(blocking=False):
        return
    try:
        shipping.forward(name)
    finally:
        forwarding.release()
