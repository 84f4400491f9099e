"""A delivery as a signed HTTP POST of JSON, as Standard Webhooks has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from clusters.net import signing
from notices.channels import posting
from notices.models import Channel, Delivery


def rendered(delivery: Delivery) -> bytes:
    """Return the body: the same bytes at every try, with an id that tells repetitions."""
    message = {"id": str(delivery.pk), "created_at": delivery.created_at.isoformat(), **delivery.body}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def headers(delivery: Delivery, body: bytes, secret: str, at: datetime) -> Mapping[str, str]:
    timestamp = int(at.timestamp())
    return {
        "Content-Type": "application/json",
        "webhook-id": str(delivery.pk),
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signing.signature(secret, str(delivery.pk), timestamp, body),
        "Setpoint-Event": delivery.event,
    }


def send(channel: Channel, delivery: Delivery, at: datetime) -> None:
    """Waits on the network: hold no transaction. Raises Undelivered."""
    secret = posting.secret_of(channel)
    body = rendered(delivery)
    posting.post(channel, [body], headers=headers(delivery, body, secret, at))
