"""Log-ins whose password was right and whose code or passkey is still to come: kept in the browser's session, for
minutes.

Such a session is no one's: nothing counts as logged in before the second step. A new password, a reset, or another
second factor ends it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpRequest

from accounts.access import account_ranges, factors
from accounts.access.addresses import client_address
from accounts.backends import WithRoles
from accounts.models import SecondFactor, User
from accounts.passkeys import keys
from common.clock import now
from common.errors import Refusal

LASTS = timedelta(minutes=5)
_KEY = "accounts.halfway"


class HalfwayOver(Refusal):
    """No log-in of this browser waits for a code: it took too long, is done, or what it relied on was changed."""

    status = 401
    code = "log-in-over"

    def __init__(self) -> None:
        super().__init__("This log-in took too long, or the account was changed meanwhile. Log in again.")


@dataclass(frozen=True, slots=True)
class Halfway:
    user: User
    factor: SecondFactor | None
    """None: the account has passkeys only."""
    account: str
    """Under which its tries are counted."""


def keep(request: HttpRequest, user: User, factor: SecondFactor | None, account: str) -> None:
    """Remember the right password in a session with a new key: one that was planted in the browser gains nothing."""
    request.session.cycle_key()
    request.session[_KEY] = {
        "user": user.pk,
        "factor": str(factor.pk) if factor else "",
        "password": user.get_session_auth_hash(),
        "account": account,
        "at": now().timestamp(),
    }


def read(request: HttpRequest) -> Halfway:
    """Raises HalfwayOver."""
    kept = request.session.get(_KEY)
    if not kept or not 0 <= now().timestamp() - kept["at"] < LASTS.total_seconds():
        raise HalfwayOver
    user = WithRoles().get_user(kept["user"])
    if user is None or not hmac.compare_digest(user.get_session_auth_hash(), kept["password"]):
        raise HalfwayOver
    if not account_ranges.accepts(user, client_address(request), "after the right password"):
        end(request)
        raise HalfwayOver
    factor = factors.of(user)
    if (str(factor.pk) if factor else "") != kept["factor"] or not (factor or keys.has_any(user)):
        raise HalfwayOver
    return Halfway(user, factor, kept["account"])


def end(request: HttpRequest) -> None:
    request.session.pop(_KEY, None)
