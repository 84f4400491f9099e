"""Challenges: random, for one purpose of one browser session, for minutes, and answered once.

The session holds it. That alone does not make it count once: two requests at once read the same session. So the first
answer, right or wrong, inserts a row, and of two inserts the database refuses one.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest
from fido2.utils import websafe_decode, websafe_encode

from accounts.models import SpentChallenge
from common.clock import now
from common.errors import Refusal

LASTS = timedelta(minutes=5)
LOG_IN, SECOND_STEP, CONFIRM, REGISTER = "log-in", "second step", "confirm", "register"
"""Purposes: an answer to the challenge of one is none to another's."""
_KEY = "accounts.passkey_challenge"


class ChallengeOver(Refusal):
    """This browser has no such challenge: it took too long, was answered already, or is another's."""

    status = 401
    code = "passkey-challenge-over"

    def __init__(self) -> None:
        super().__init__("This took too long, or was answered already. Try again.")


@dataclass(frozen=True, slots=True)
class Challenge:
    value: bytes
    user_handle: str
    """Of a registration; empty otherwise."""


def issue(request: HttpRequest, purpose: str, *, user_pk: int = 0, user_handle: str = "") -> bytes:
    """Put a new challenge into the session, in place of the one before. `user_pk`: 0 where no one is known yet."""
    value = secrets.token_bytes(32)
    request.session[_KEY] = {
        "value": websafe_encode(value),
        "purpose": purpose,
        "user": user_pk,
        "handle": user_handle,
        "at": now().timestamp(),
    }
    return value


def claim(request: HttpRequest, purpose: str, *, user_pk: int = 0) -> Challenge:
    """Take the session's challenge for the one answer that it gets. Raises ChallengeOver."""
    kept: dict[str, Any] | None = request.session.pop(_KEY, None)
    if not kept or kept["purpose"] != purpose or kept["user"] != user_pk:
        raise ChallengeOver
    if not 0 <= now().timestamp() - kept["at"] < LASTS.total_seconds():
        raise ChallengeOver
    value = websafe_decode(kept["value"])
    try:
        with transaction.atomic():
            SpentChallenge.objects.create(digest=hashlib.sha256(value).hexdigest())
    except IntegrityError as error:
        raise ChallengeOver from error
    return Challenge(value, kept["handle"])


def forget_old() -> int:
    """Delete what is older than any challenge that a session may still hold. Rows deleted."""
    return SpentChallenge.objects.filter(at__lt=now() - 3 * LASTS).delete()[0]
