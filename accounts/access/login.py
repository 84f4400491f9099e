"""Logging in with a password, slowly enough that guessing is hopeless.

An attempt is written before the password is looked at, so a hundred at once do not all pass; success forgets them.
Where the account has a second factor, its code is an attempt of the same count, and only both together are a success.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.contrib import auth
from django.db import transaction
from django.http import HttpRequest

from accounts.access import account_ranges, factors, freshness, halfway, requirement, sessions
from accounts.access.addresses import client_address
from accounts.models import LoginAttempt, User
from accounts.passkeys import keys
from audit.services import record
from common.clock import now
from common.errors import NotAllowed, Refusal

TRIES = 5
TRIES_PER_ADDRESS = 50
"""For all accounts from one address: many people may sit behind it, and 50 tries a minute guess no password."""
WINDOW = timedelta(minutes=1)
ELSEWHERE = "single sign-on"
"""Under which its starts are counted; no e-mail address can be this."""


class TooManyTries(Refusal):
    status = 429
    code = "too-many-tries"
    retry_after = int(WINDOW.total_seconds())


class PasswordsClosed(NotAllowed):
    """Passwords are for named emergency accounts; the same answer for known and unknown accounts."""

    code = "passwords-closed"


class WrongPassword(Exception):
    def __init__(self, tries_left: int) -> None:
        super().__init__(f"{tries_left} tries left")
        self.tries_left = tries_left


class WrongCode(Exception):
    """The message says it; it is shown to a person who has proved the password."""

    def __init__(self, tries_left: int) -> None:
        super().__init__(factors.WRONG_CODE)
        self.tries_left = tries_left


def log_in(request: HttpRequest, *, email: str, password: str) -> User | None:
    """Start the session; None where the account has a second factor: `log_in_with_code` or a passkey starts it then.

    Raises WrongPassword with the tries left, TooManyTries; both also for unknown accounts.

    Raises PasswordsClosed where passwords are for named accounts only, and this is none of them."""
    account, address = email.strip().lower()[:254], client_address(request)
    if not takes_password(account):
        raise PasswordsClosed("Passwords are accepted for emergency accounts only. Use single sign-on.")
    tries = count_try(account, address)
    user = auth.authenticate(request, username=account, password=password)
    if isinstance(user, User) and not account_ranges.accepts(user, address, "with the right password"):
        user = None  # the answer is that to a wrong password, and what the browser proved stays unsaid
    if not isinstance(user, User) or user.is_service:
        if tries == TRIES:  # once a minute at most: guessing must not flood the record
            record(by="anonymous", action="session.throttle", target=f"account:{account[:150]}", message=address)
        raise WrongPassword(TRIES - tries)
    factor = factors.of(user)
    if factor or keys.has_any(user):
        # Not forgiven yet: else a thief of the password could guess codes without end, one after each log-in.
        halfway.keep(request, user, factor, account)
        return None
    with transaction.atomic():
        forgive(account, address)
        enter(request, user, proved_at=now())
    return user


def takes_password(account: str) -> bool:
    """Return whether this account, by its e-mail address, may prove itself by password here."""
    return not settings.SETPOINT_LOCAL_ACCOUNTS or account in settings.SETPOINT_LOCAL_ACCOUNTS


def log_in_with_code(request: HttpRequest, *, code: str) -> str:
    """Start the session of the log-in that waits in this browser. Returns how it was proved (factors.spend).

    Raises HalfwayOver, WrongCode with the tries left, TooManyTries, FactorUnusable."""
    half, address = halfway.read(request), client_address(request)
    tries = count_try(half.account, address)
    if half.factor is None:
        raise factors.FactorUnusable("This account has no authenticator app. Use its passkey.")
    proof = factors.spend(half.factor, code)
    if not proof:
        target, email = f"user:{half.user.pk}", half.user.email
        record(by="anonymous", action="session.refuse-code", target=target, target_name=email, message=address)
        raise WrongCode(TRIES - tries)
    halfway.end(request)
    with transaction.atomic():
        forgive(half.account, address)
        enter(request, half.user, proved_at=now(), way=f"with a code ({proof})", is_complete=True)
    return proof


@transaction.atomic
def enter(
    request: HttpRequest, user: User, *, proved_at: datetime | None, way: str = "", is_complete: bool = False
) -> None:
    """Start a session for a user whose identity has been verified. `way`: how, where it was not by password alone.

    `proved_at`: when they proved it (accounts.access.freshness). `is_complete`: no second factor is asked for any
    more."""
    auth.login(request, user)
    request.session.set_expiry(latest_end())  # a time: seconds would count from each save of the session
    freshness.note(request, proved_at, way or "with the password")
    if is_complete:
        requirement.note_complete(request)
    else:
        requirement.note_incomplete(request)
    sessions.begin(request, user)
    message = f"{client_address(request)} {way}".strip()
    record(by=user, action="session.start", target=f"user:{user.pk}", target_name=user.email, message=message)


def latest_end() -> datetime:
    """Return when a session that begins now ends at the latest."""
    return now() + timedelta(seconds=settings.SESSION_COOKIE_AGE)


def log_out(request: HttpRequest) -> None:
    if isinstance(request.user, User):
        record(by=request.user, action="session.end", target=f"user:{request.user.pk}", target_name=request.user.email)
    auth.logout(request)


def count_try(account: str, address: str) -> int:
    """Count this log-in attempt and return its number, from 1. Raises TooManyTries."""
    since = now() - WINDOW
    attempt = LoginAttempt.objects.create(account=account, address=address)
    recent = LoginAttempt.objects.filter(address=address, at__gt=since)
    tries = recent.filter(account=account).count()
    if tries > TRIES or recent.count() > TRIES_PER_ADDRESS:
        attempt.delete()  # refused unseen, it must not prolong the pause
        raise TooManyTries("Too many attempts. Wait one minute, then try again.")
    return tries


def count_start(address: str) -> None:
    """Count the start of a log-in elsewhere: each makes a session row. Raises TooManyTries."""
    since = now() - WINDOW
    if LoginAttempt.objects.filter(address=address, at__gt=since).count() >= TRIES_PER_ADDRESS:
        raise TooManyTries("Too many attempts. Wait one minute, then try again.")
    LoginAttempt.objects.create(account=ELSEWHERE, address=address)


def forgive(account: str, address: str) -> None:
    """Delete the recorded attempts after a correct log-in."""
    LoginAttempt.objects.filter(account=account, address=address).delete()


def forget_old() -> int:
    """Rows deleted."""
    return LoginAttempt.objects.filter(at__lt=now() - 10 * WINDOW).delete()[0]
