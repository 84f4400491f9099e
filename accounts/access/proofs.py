"""Proof by one's own password in a session that exists already, with tries counted like those of a log-in.

They are counted apart from log-ins, so that a stolen session neither guesses the password nor locks its owner out.
"""

from __future__ import annotations

from django.http import HttpRequest

from accounts.access import factors, freshness, login
from accounts.access.addresses import client_address
from accounts.models import User
from accounts.passkeys import keys
from audit.services import record
from common.clock import now
from common.errors import Invalid, NotAllowed

WRONG_PASSWORD = "This is not your present password."  # noqa: S105 a message


def require_password(
    request: HttpRequest, user: User, password: str, *, field: str = "password", forgives: bool = True
) -> None:
    """Raises Invalid under `field`, TooManyTries. `forgives`: False where a code must follow."""
    count_try(request, user)
    if not user.check_password(password):
        raise Invalid("Nothing was changed.", fields={field: [WRONG_PASSWORD]})
    if forgives:
        forgive(request, user)


def confirm(request: HttpRequest, user: User, *, password: str, code: str = "") -> None:
    """Prove again who is before the browser, as at a log-in. Raises Invalid, TooManyTries, PasswordsClosed,
    NotAllowed (the account has passkeys and no app), factors.FactorUnusable."""
    if not login.takes_password(user.email):
        raise login.PasswordsClosed("A password confirms nothing here: log in again with single sign-on.")
    factor = factors.of(user)
    if factor is None and keys.has_any(user):
        raise NotAllowed("The password alone confirms nothing, for your log-in takes a passkey too. Use the passkey.")
    require_password(request, user, password, forgives=factor is None)
    if factor is not None:
        if not factors.spend(factor, code):
            raise Invalid("Nothing was confirmed.", fields={"code": [factors.WRONG_CODE]})
        forgive(request, user)
    note_confirmed(request, user, "with password and code" if factor else "with the password")


def note_confirmed(request: HttpRequest, user: User, way: str) -> None:
    """Keep in the session, and record, that the person proved themselves just now, and how."""
    freshness.note(request, now(), way)
    message = f"{client_address(request)} {way}"
    record(by=user, action="session.confirm", target=f"user:{user.pk}", target_name=user.email, message=message)


def count_try(request: HttpRequest, user: User) -> None:
    """Raises TooManyTries."""
    login.count_try(_account(user), client_address(request))


def forgive(request: HttpRequest, user: User) -> None:
    login.forgive(_account(user), client_address(request))


def _account(user: User) -> str:
    """Return the name under which tries are counted; no e-mail address can be this."""
    return f"session of user {user.pk}"
