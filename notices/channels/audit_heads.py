"""The head of the sealed audit record, sent to a receiver that the database's administrators do not own.

It needs no signature: a seal that is not ours contradicts the chain, and that is what it is kept for.
"""

from __future__ import annotations

import json
import time

import structlog
from django.conf import settings

from audit.models import Chain
from clusters.fleet import FleetError
from clusters.kube.http import HttpClient
from clusters.net.egress import Policy
from common.clock import now
from notices.channels.posting import LONGEST_ANSWER, SECONDS

log = structlog.get_logger(__name__)


class _Sent:
    """The head that this process sent last."""

    head = ""


def ship() -> bool:
    """True if one was sent. Waits on the network: hold no transaction. What fails is tried again a minute later."""
    url = settings.SETPOINT_AUDIT_HEADS_WEBHOOK
    chain = Chain.objects.filter(pk=1).first() if url else None
    if chain is None or not chain.seq or str(chain) == _Sent.head:
        return False
    message = {"installation": settings.SETPOINT_INSTALLATION, "head": str(chain), "at": now().isoformat()}
    door = HttpClient(Policy.of(settings.SETPOINT_ALLOW_NETWORKS), timeout=SECONDS)
    try:
        answer = door.post(
            url,
            json.dumps(message).encode(),
            headers={"Content-Type": "application/json", "Setpoint-Event": "audit-head"},
            limit=LONGEST_ANSWER,
            deadline=time.monotonic() + SECONDS,
        )
    except FleetError as error:
        log.error("audit head not kept", place="webhook", error=str(error))
        return False
    finally:
        door.close()
    if not 200 <= answer.status < 300:
        log.error("audit head not kept", place="webhook", error=f"answered {answer.status}")
        return False
    _Sent.head = str(chain)
    return True
