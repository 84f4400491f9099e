"""A delivery as an HTTP POST: signed, under the egress policy, bounded in time and size; a redirect is a refusal."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings

from clusters.connection import encryption
from clusters.fleet import FleetError
from clusters.kube.http import HttpClient
from clusters.net.egress import Policy
from notices.models import Channel, Delivery

SECONDS = 10.0
LONGEST_ANSWER = 64 * 1024
"""Bytes; what it says is not looked at, but it must end."""


class Undelivered(Exception):
    """Delivery failure, as far as is known: it is sent again. The message is for people and holds no secret."""


KEY_PREFIX = "whsec_"


def key(secret: str) -> bytes:
    """Return the signing key: after `whsec_` the bytes that its base64 names, else the text itself."""
    return decoded(secret) or secret.encode()


def decoded(secret: str) -> bytes | None:
    """The bytes of a secret in the form of Standard Webhooks; None of another."""
    if not secret.startswith(KEY_PREFIX):
        return None
    try:
        return base64.b64decode(secret.removeprefix(KEY_PREFIX), validate=True)
    except ValueError:
        return None


def signature(secret: str, name: str, timestamp: int, body: bytes) -> str:
    """Return a Standard Webhooks signature.

    It is `v1,` and the HMAC-SHA256, in base64, of id, timestamp and body, joined by full stops.
    """
    signed = f"{name}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key(secret), signed, hashlib.sha256).digest()).decode()


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
        "webhook-signature": signature(secret, str(delivery.pk), timestamp, body),
        "Setpoint-Event": delivery.event,
        # Deprecated, for one release: receivers that check these move to the three above.
        "Setpoint-Delivery": str(delivery.pk),
        "Setpoint-Timestamp": str(timestamp),
        "Setpoint-Signature": former_signature(secret, timestamp, body),
    }


def send(channel: Channel, delivery: Delivery, at: datetime) -> None:
    """Waits on the network: hold no transaction. Raises Undelivered."""
    try:
        secret = channel.open_secret()
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise Undelivered(f"Its secret cannot be read: {error}. Give it again.") from error
    body = rendered(delivery)
    host = urlsplit(channel.url).hostname or "the receiver"
    door = HttpClient(Policy.of(settings.SETPOINT_ALLOW_NETWORKS), ca=channel.ca, allows_http=True, timeout=SECONDS)
    try:
        answer = door.post(
            channel.url,
            body,
            headers=headers(delivery, body, secret, at),
            limit=LONGEST_ANSWER,
            deadline=time.monotonic() + SECONDS,
        )
    except FleetError as error:
        raise Undelivered(f"{error}.") from error
    finally:
        door.close()
    if 300 <= answer.status < 400:
        raise Undelivered(
            f"{host} answers with a redirect ({answer.status}), which is not followed. Give the address it leads to."
        )
    if not 200 <= answer.status < 300:
        raise Undelivered(f"{host} answered {answer.status}.")
