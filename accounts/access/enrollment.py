"""One's own second factor: begun with the password, in effect once confirmed with a code, removed with both.

Tries are counted like those of a log-in, so that a stolen session guesses neither password nor code.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.access import factors, freshness, proofs, requirement, sessions, totp
from accounts.access.addresses import client_address
from accounts.models import SecondFactor, User
from accounts.passkeys import keys
from audit.services import record
from common.clock import now
from common.errors import Invalid, WrongState

CONFIRM_WITHIN = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Begun:
    """A second factor that waits for its first code: the key for the app, and the link that apps open."""

    key: str
    link: str

    @property
    def grouped(self) -> str:
        return " ".join(self.key[start : start + 4] for start in range(0, len(self.key), 4))


def begin(request: HttpRequest, *, user: User, password: str) -> Begun:
    """Make a key, which takes effect with `confirm`. Raises Invalid, WrongState, TooManyTries, FactorUnusable."""
    if reason := factors.reason_without(user):
        raise WrongState(reason)
    if keys.has_any(user) and freshness.is_stale(freshness.proved_at(request)):
        # Else the password alone, in a stolen session, would make another way in beside the passkey.
        raise WrongState("You have a passkey: confirm with it first that it is you.")
    proofs.require_password(request, user, password)
    with transaction.atomic():
        _one_at_a_time(user)
        waiting = SecondFactor.objects.filter(user=user, confirmed_at=None)
        for row in waiting:
            factors.require_genuine(row)
        waiting.delete()
        if SecondFactor.objects.filter(user=user).exists():
            raise WrongState("You have a second factor. Remove it first to set up another one.")
        row, key = SecondFactor(user=user, begun_in=sessions.key_of(request) or ""), totp.new_key()
        factors.seal_key(row, key)
        row.save()
    return _begun(row, key)


def waiting_for(request: HttpRequest, user: User) -> Begun | None:
    """Return what this session began and can still confirm; None also where its key cannot be read: begin again."""
    row = _waiting(request, user).first()
    with suppress(factors.FactorUnusable):
        return _begun(row, factors.key_of(row)) if row and row.is_genuine else None
    return None


def confirm(request: HttpRequest, *, user: User, code: str) -> list[str]:
    """Put it into effect and return the recovery codes, whose text exists only here. Other sessions end.

    Raises Invalid for a wrong code, WrongState, TooManyTries, FactorUnusable.
    """
    proofs.count_try(request, user)
    with transaction.atomic():
        _one_at_a_time(user)
        row = _waiting(request, user).first()
        if row is None or not row.is_genuine:
            raise WrongState("No second factor waits for its first code in this browser. Set it up again.")
        step = totp.step_of(factors.key_of(row), factors.normalized(code), now())
        if step is None:
            wrong = "Wrong code. Look whether the app has this key, and whether its clock is right."
            raise Invalid("The second factor is not set up.", fields={"code": [wrong]})
        row.put_marked(confirmed_at=now(), last_step=step)
        codes = factors.new_recovery_codes(row)
        sessions.end_all(user, keep=sessions.key_of(request))
        _record(request, user, "second-factor.enroll")
    proofs.forgive(request, user)
    requirement.note_complete(request)
    return codes


def forget_old() -> int:
    """Delete what was begun and never confirmed; a row that was changed in the database stays. Rows deleted."""
    deleted = 0
    old = SecondFactor.objects.filter(confirmed_at=None, begun_at__lt=now() - CONFIRM_WITHIN)
    for user in User.objects.filter(pk__in=old.values("user"))[:100]:
        with transaction.atomic():
            _one_at_a_time(user)
            row = old.filter(user=user).first()
            if row and row.is_genuine:
                row.delete()
                deleted += 1
    return deleted


def remove(request: HttpRequest, *, user: User, password: str, code: str) -> None:
    """Take one's own factor away. Raises Invalid, WrongState, TooManyTries, FactorUnusable."""
    row = _proved(request, user, password, code)
    with transaction.atomic():
        if not SecondFactor.objects.filter(pk=row.pk).delete()[0]:
            raise WrongState("This second factor was removed in the meantime.")
        _record(request, user, "second-factor.remove")
    if not keys.has_any(user):
        requirement.note_incomplete(request)


def renew_recovery_codes(request: HttpRequest, *, user: User, password: str, code: str) -> list[str]:
    """Replace the recovery codes. Raises Invalid, WrongState, TooManyTries, FactorUnusable."""
    row = _proved(request, user, password, code)
    with transaction.atomic():
        if not SecondFactor.objects.select_for_update().filter(pk=row.pk).exists():
            raise WrongState("This second factor was removed in the meantime.")
        codes = factors.new_recovery_codes(row)
        _record(request, user, "second-factor.renew-recovery-codes")
    return codes


def _proved(request: HttpRequest, user: User, password: str, code: str) -> SecondFactor:
    """Return the factor, whose owner has just proved the password and a code. The code is used up."""
    row = factors.of(user)
    if row is None:
        raise WrongState("You have no second factor.")
    proofs.require_password(request, user, password, forgives=False)
    if not factors.spend(row, code):
        raise Invalid("Nothing was changed.", fields={"code": [factors.WRONG_CODE]})
    proofs.forgive(request, user)
    return row


def _one_at_a_time(user: User) -> None:
    """Wait for what is done at the same time to this person's factor. In the caller's transaction."""
    User.objects.select_for_update().get(pk=user.pk)


def _waiting(request: HttpRequest, user: User) -> QuerySet[SecondFactor]:
    since, session = now() - CONFIRM_WITHIN, sessions.key_of(request) or "-"
    return SecondFactor.objects.filter(user=user, confirmed_at=None, begun_at__gt=since, begun_in=session)


def _begun(row: SecondFactor, key: str) -> Begun:
    issuer = f"Setpoint {urlsplit(settings.BASE_URL).hostname or ''}".strip()
    return Begun(key, totp.link(key, row.user.email, issuer))


def _record(request: HttpRequest, user: User, action: str) -> None:
    address = client_address(request)
    record(by=user, action=action, target=f"user:{user.pk}", target_name=user.email, message=address)
