"""The first administrator of an installation, made on a page that only the set-up token opens.

`manage.py up` prints the token at every start until an account exists. A reader of that terminal or log owns the
machine already; reaching the port alone is not enough. Once an account exists, set-up stays closed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest

from accounts.access import login, networks
from accounts.access.addresses import client_address
from accounts.models import Setup, User
from accounts.people import services
from accounts.permissions import Role
from common.clock import now
from common.errors import Invalid, NotAllowed, Refusal

BY = "set-up page"
_ACCOUNT = "set-up"
"""Under which wrong tokens are counted; no email address can be this."""


class SetupClosed(Refusal):
    """Permanent refusal: an account exists, so set-up is closed."""

    status = 410
    code = "setup-closed"

    def __init__(self) -> None:
        super().__init__("An account exists, so this page is closed. Log in instead.")


class WrongToken(NotAllowed):
    code = "wrong-setup-token"


@transaction.atomic
def prepare() -> str | None:
    """Return a new token in place of the last; None, with set-up closed for ever, once an account exists."""
    row, _ = Setup.objects.get_or_create(pk=Setup.ONLY, defaults={"token_hash": ""})
    row = Setup.objects.select_for_update().get(pk=row.pk)
    if row.closed_at:
        return None
    if User.objects.exists():
        row.put_marked(closed_at=now(), token_hash="")
        return None
    token = secrets.token_urlsafe(24)
    row.put_marked(token_hash=_hash_of(token), made_at=now())
    return token


def is_open() -> bool:
    """Return whether the first administrator is still to be made."""
    return not User.objects.exists() and not Setup.objects.filter(pk=Setup.ONLY, closed_at__isnull=False).exists()


def check(request: HttpRequest, token: str) -> None:
    """Raises SetupClosed, WrongToken, TooManyTries: five a minute from one address, counted before it is looked at."""
    if not is_open():
        raise SetupClosed
    address = client_address(request)
    left = login.TRIES - login.count_try(_ACCOUNT, address)
    if _is_right(token):
        login.forgive(_ACCOUNT, address)
        return
    if not is_open():  # another request was faster
        raise SetupClosed
    tries = f"{left} more {'try' if left == 1 else 'tries'}" if left else "That was the last try"
    raise WrongToken(f"This is not the set-up token of the newest start. {tries} before a pause of one minute.")


@transaction.atomic
def make_first_administrator(
    request: HttpRequest, *, token: str, email: str, password: str, also_operates: bool
) -> User:
    """Create the first administrator; of two concurrent calls one wins.

    Raises SetupClosed, WrongToken, TooManyTries, Invalid, also from outside of SETPOINT_POWER_NETWORKS; then set-up
    stays open."""
    open_ = Setup.objects.select_for_update().filter(pk=Setup.ONLY, closed_at=None, token_hash=_hash_of(token))
    row = open_.first()
    if row is None or not row.is_genuine or User.objects.exists():
        raise SetupClosed
    if not networks.admits(settings.SETPOINT_POWER_NETWORKS, address := client_address(request)):
        place = address or "an unknown address"
        reason = f"You come from {place}, which is outside of SETPOINT_POWER_NETWORKS: your session would end at once."
        raise Invalid("The administrator was not made.", fields={"address": [reason]})
    row.put_marked(closed_at=now(), token_hash="")
    user = services.create_user(email=email, password=password, by=BY)
    for role in (Role.ADMIN, *((Role.OPERATOR,) if also_operates else ())):
        services.bind(user=user, role=role, scope="*", by=BY)
    login.enter(request, user, proved_at=now())
    return user


def _is_right(token: str) -> bool:
    row = Setup.objects.filter(pk=Setup.ONLY, closed_at=None).first()
    is_ours = row is not None and row.is_genuine
    return hmac.compare_digest(_hash_of(token), row.token_hash if row and row.token_hash else "0" * 64) and is_ours


def _hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
