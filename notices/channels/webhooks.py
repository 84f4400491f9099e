"""A delivery as a signed HTTP POST of JSON, as Standard Webhooks has it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import datetime

from clusters.net import signing
from notices.channels import posting
from notices.models import Channel, Delivery


def former_signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the deprecated signature from before Standard Webhooks.

    It is `v1=` and the HMAC-SHA256, in hexadecimal, of timestamp and body, joined by a full stop.
    """
    return "v1=" + hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def rendered(delivery: Delivery) -> bytes:
    """The same bytes at every try but for nothing: the id tells repetitions."""
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
        # Deprecated, for one release: receivers that check these move to the three above.
        "Setpoint-Delivery": str(delivery.pk),
        "Setpoint-Timestamp": str(timestamp),
        "Setpoint-Signature": former_signature(secret, timestamp, body),
    }


def send(channel: Channel, delivery: Delivery, at: datetime) -> None:
    """Waits on the network: hold no transaction. Raises Undelivered."""
    secret = posting.secret_of(channel)
    body = rendered(delivery)
    posting.post(channel, [body], headers=headers(delivery, body, secret, at))
