"""Proof by a passkey: a log-in of its own, the second step after a password, and a recent log-in.

Alone it is possession and verification of its user (PIN, fingerprint), so both are required; after the password it is
the second factor, and possession is enough. An unknown browser learns nothing of any account: the request names none,
and every refusal reads alike.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest

from accounts.access import account_ranges, factors, halfway, login, proofs, requirement
from accounts.access.addresses import client_address
from accounts.backends import WithRoles
from accounts.models import Passkey, User
from accounts.passkeys import ceremonies, challenges, keys, relying_party
from accounts.passkeys.ceremonies import Answer, NotProved
from audit.services import record
from common.clock import now
from common.errors import Refusal, WrongState

UNKNOWN = "a passkey"
"""Under which answers of no known passkey are counted; no e-mail address can be this."""


class PasskeyRefused(Refusal):
    """The passkey was not accepted; the audit record has the reason, and the browser does not."""

    status = 401
    code = "passkey-refused"


def reason_without(user: User) -> str:
    """Return the reason why this account can use no passkey here; empty when it can."""
    if reason := factors.reason_without(user):
        return reason
    if not login.takes_password(user.email):
        return "Local accounts are for emergencies only here: log in by single sign-on."
    return relying_party.reason_without()


def require_possible(user: User | None = None) -> None:
    """Raises WrongState."""
    if reason := reason_without(user) if user else relying_party.reason_without():
        raise WrongState(reason)


# ── A log-in by passkey alone ─────────────────────────────────────────────────────────────────────────────────────────
def options_for_log_in(request: HttpRequest) -> dict[str, Any]:
    """The same for everyone. Raises WrongState, login.TooManyTries: each makes a row of a session."""
    require_possible()
    login.count_start(client_address(request))
    challenge = challenges.issue(request, challenges.LOG_IN)
    return ceremonies.request_options(challenge, present=None, is_verified=True)


def log_in(request: HttpRequest, text: str) -> User:
    """Start the session of the passkey's owner. Raises PasskeyRefused, ChallengeOver, login.TooManyTries."""
    answer, row = _named(text)
    account, address = f"passkey of user {row.user_id}" if row else UNKNOWN, client_address(request)
    tries = login.count_try(account, address)
    if row is None and tries == login.TRIES:  # once a minute at most, as for passwords
        record(by="anonymous", action="session.throttle", target=f"account:{UNKNOWN}", message=address)
    challenge = challenges.claim(request, challenges.LOG_IN)
    try:
        if answer is None or row is None:
            raise NotProved("unknown passkey")
        user = WithRoles().get_user(row.user_id)
        if user is None or reason_without(user):
            raise NotProved("its account may not log in with it")
        if not account_ranges.admits(user, address):
            raise NotProved(account_ranges.OUTSIDE)
        _use(answer, row, challenge.value, is_verified=True, names_its_user=True)
    except NotProved as error:
        if row is not None:
            _record_refusal(row.user, "anonymous", address, error)
        raise PasskeyRefused("This passkey was not accepted. Try again, or log in with the password.") from error
    with transaction.atomic():
        login.forgive(account, address)
        login.enter(request, user, proved_at=now(), way=f"with the passkey {row.name}", is_complete=True)
    return user


# ── The second step ───────────────────────────────────────────────────────────────────────────────────────────────────
def options_for_second_step(request: HttpRequest) -> dict[str, Any]:
    """Names the account's passkeys, to a browser that has proved the password. Raises HalfwayOver, WrongState."""
    half = halfway.read(request)
    require_possible(half.user)
    challenge = challenges.issue(request, challenges.SECOND_STEP, user_pk=half.user.pk)
    return ceremonies.request_options(challenge, present=keys.of(half.user), is_verified=False)


def log_in_after_password(request: HttpRequest, text: str) -> User:
    """Start the session of the log-in that waits in this browser.

    Raises HalfwayOver, PasskeyRefused, ChallengeOver, login.TooManyTries, WrongState."""
    half, address = halfway.read(request), client_address(request)
    login.count_try(half.account, address)
    require_possible(half.user)
    challenge = challenges.claim(request, challenges.SECOND_STEP, user_pk=half.user.pk)
    try:
        row = _of(half.user, text, challenge.value, is_verified=False)
    except NotProved as error:
        _record_refusal(half.user, "anonymous", address, error)
        raise PasskeyRefused("This passkey was not accepted. Try again, or use another one.") from error
    halfway.end(request)
    with transaction.atomic():
        login.forgive(half.account, address)
        way = f"with password and the passkey {row.name}"
        login.enter(request, half.user, proved_at=now(), way=way, is_complete=True)
    return half.user


# ── A recent log-in ───────────────────────────────────────────────────────────────────────────────────────────────────
def options_to_confirm(request: HttpRequest, user: User) -> dict[str, Any]:
    """Raises WrongState."""
    require_possible(user)
    challenge = challenges.issue(request, challenges.CONFIRM, user_pk=user.pk)
    return ceremonies.request_options(challenge, present=keys.of(user), is_verified=True)


def confirm(request: HttpRequest, user: User, text: str) -> None:
    """Prove again who is before the browser. Raises PasskeyRefused, ChallengeOver, login.TooManyTries, WrongState."""
    proofs.count_try(request, user)
    require_possible(user)
    challenge = challenges.claim(request, challenges.CONFIRM, user_pk=user.pk)
    try:
        row = _of(user, text, challenge.value, is_verified=True)
    except NotProved as error:
        _record_refusal(user, user, client_address(request), error)
        raise PasskeyRefused("This passkey was not accepted. Try again, or use another one.") from error
    proofs.forgive(request, user)
    proofs.note_confirmed(request, user, f"with the passkey {row.name}")
    requirement.note_complete(request)


# ── All three ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def _named(text: str) -> tuple[Answer | None, Passkey | None]:
    """Return the answer, and the passkey that it names; None for what is neither."""
    try:
        answer = ceremonies.read(text)
    except NotProved:
        return None, None
    return answer, keys.by_credential(answer.credential)


def _of(user: User, text: str, challenge: bytes, *, is_verified: bool) -> Passkey:
    """Return this person's passkey that made the answer. Raises NotProved, also for another person's."""
    answer = ceremonies.read(text)
    row = keys.by_credential(answer.credential)
    if row is None or row.user_id != user.pk:
        raise NotProved("unknown passkey" if row is None else "the passkey of another account")
    _use(answer, row, challenge, is_verified=is_verified, names_its_user=False)
    return row


def _use(answer: Answer, row: Passkey, challenge: bytes, *, is_verified: bool, names_its_user: bool) -> None:
    """Raises NotProved."""
    if not row.is_genuine:
        raise NotProved("the passkey was changed in the database")
    count = ceremonies.verify(answer, row, challenge, is_verified=is_verified, names_its_user=names_its_user)
    keys.count_use(row, count)


def _record_refusal(user: User, by: User | str, address: str, error: NotProved) -> None:
    message = f"{address} {error}"
    record(by=by, action="passkey.refuse", target=f"user:{user.pk}", target_name=user.email, message=message)
