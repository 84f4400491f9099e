"""A ticket system: it signs as Standard Webhooks has it, by the text of the standard and not by the product's code."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
from typing import Any

from django.test import Client

from accounts.models import PendingChange
from accounts.people import pending
from common.clock import now
from jobs.approvals.tickets import connections
from tests.factories import UserFactory

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()
_ids = itertools.count(1)


def sign(message_id: str, timestamp: int | str, body: bytes, key: bytes = KEY) -> str:
    mac = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(mac.digest()).decode()


def consent() -> None:
    """Another administrator consents to what waits, if anything does."""
    for change in PendingChange.objects.filter(status=PendingChange.Status.WAITING):
        pending.consent(pk=change.pk, by=UserFactory(roles=["admin"]))


class TicketSystem:
    def __init__(self, admin: Any, name: str = "ServiceNow") -> None:
        self.row = connections.create(by=admin, name=name, secret=SECRET)
        consent()
        self.row.refresh_from_db()
        self.path = f"/hooks/change-records/{self.row.pk}"

    def send(self, reference: str, state: str, *, later: int = 0, message_id: str = "", **more: Any) -> int:
        """The status that comes back. `later`: seconds that the message's clock is ahead."""
        body = json.dumps({"reference": reference, "state": state, **more}).encode()
        return self.post(body, later=later, message_id=message_id).status_code

    def post(self, body: bytes, *, later: int = 0, message_id: str = "", **headers: str) -> Any:
        name, timestamp = message_id or f"msg_{next(_ids)}", str(int(now().timestamp()) + later)
        given = {"webhook-id": name, "webhook-timestamp": timestamp, "webhook-signature": sign(name, timestamp, body)}
        return Client().post(self.path, body, "application/json", headers=given | headers)
