"""Posts of deliveries over HTTP: under the egress policy, bounded in time and size; a redirect is a refusal.

All kinds of channels but mail go through here. Libraries that know many chat services (apprise and the like) open
connections of their own, so an administrator of channels could reach addresses that the egress policy forbids.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from django.conf import settings

from clusters.connection import encryption
from clusters.fleet import FleetError
from clusters.kube.http import HttpClient
from clusters.net.egress import Policy
from notices.models import Channel

SECONDS = 10.0
"""For one delivery, of however many posts: less than a claim of its channel lasts."""
LONGEST_ANSWER = 64 * 1024
"""Bytes; what it says is not looked at, but it must end."""
JSON = {"Content-Type": "application/json"}


class Undelivered(Exception):
    """Delivery failure, as far as is known: it is sent again. The message is for people and holds no secret."""


def secret_of(channel: Channel) -> str:
    """Raises Undelivered."""
    try:
        return channel.open_secret()
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise Undelivered(f"Its secret cannot be read: {error}. Give it again.") from error


def post(channel: Channel, bodies: Iterable[bytes], *, headers: Mapping[str, str] = JSON) -> None:
    """Send each body to the channel's address, until one is refused. Waits on the network. Raises Undelivered."""
    host = urlsplit(channel.url).hostname or "the receiver"
    door = HttpClient(Policy.of(settings.SETPOINT_ALLOW_NETWORKS), ca=channel.ca, allows_http=True, timeout=SECONDS)
    deadline = time.monotonic() + SECONDS
    try:
        for body in bodies:
            answer = door.post(channel.url, body, headers=headers, limit=LONGEST_ANSWER, deadline=deadline)
            _judge(answer.status, host)
    except FleetError as error:
        raise Undelivered(f"{error}.") from error
    finally:
        door.close()


def _judge(status: int, host: str) -> None:
    if 300 <= status < 400:
        raise Undelivered(
            f"{host} answers with a redirect ({status}), which is not followed. Give the address it leads to."
        )
    if not 200 <= status < 300:
        raise Undelivered(f"{host} answered {status}.")
