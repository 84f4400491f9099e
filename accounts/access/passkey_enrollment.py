"""One's own passkeys: removed after a recent log-in in this browser, registered with the password as well.

A session alone, stolen or left open, does neither: what a passkey opens outlasts the session.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest

from accounts.access import factors, freshness, proofs, requirement, sessions
from accounts.access.addresses import client_address
from accounts.access.passkey_logins import require_possible
from accounts.models import Passkey, User
from accounts.passkeys import ceremonies, challenges, keys
from audit.services import record
from common.errors import Invalid, Missing, NotAllowed, WrongState


class RecentLogInNeeded(NotAllowed):
    """The person proved who they are too long ago, or it is not known when."""

    code = "fresh-login-needed"

    def __init__(self) -> None:
        super().__init__("This requires a recent log-in: confirm first that it is you.")


def options(request: HttpRequest, user: User, *, password: str) -> dict[str, Any]:
    """Raises WrongState, RecentLogInNeeded, Invalid, TooManyTries."""
    _require(request, user)
    proofs.require_password(request, user, password)
    present, handle = keys.of(user), keys.handle_for(user)
    challenge = challenges.issue(request, challenges.REGISTER, user_pk=user.pk, user_handle=handle)
    return ceremonies.creation_options(challenge, user_handle=handle, email=user.email, present=present)


def register(request: HttpRequest, *, user: User, password: str, name: str, text: str) -> Passkey:
    """Store the credential that the browser made. With the first second factor of an account other sessions end.

    Raises Invalid, WrongState, ChallengeOver, RecentLogInNeeded, TooManyTries."""
    _require(request, user)
    proofs.require_password(request, user, password)  # as an app: else a stolen session would make a way in of its own
    challenge = challenges.claim(request, challenges.REGISTER, user_pk=user.pk)
    try:
        made = ceremonies.registered(text, challenge.value)
    except ceremonies.NotProved as error:
        _record(request, user, "passkey.refuse", f"registration: {error}")
        raise Invalid("The passkey was not registered.", fields={"response": [f"Not accepted: {error}."]}) from error
    try:
        with transaction.atomic():
            User.objects.select_for_update().get(pk=user.pk)  # two at once are counted one after the other
            _require_room(user)
            is_first = factors.of(user) is None and not keys.has_any(user)
            row = Passkey.objects.create(
                user=user,
                name=name,
                credential=made.credential,
                user_handle=challenge.user_handle,
                public_key=made.public_key,
                sign_count=made.sign_count,
                is_syncable=made.is_syncable,
            )
            if is_first:
                sessions.end_all(user, keep=sessions.key_of(request))
            _record(request, user, "passkey.register", name)
    except IntegrityError as error:  # credential IDs are unique over all accounts
        _record(request, user, "passkey.refuse", "registration: its credential ID is registered already")
        wrong = "A passkey with this ID is registered already."
        raise Invalid("The passkey was not registered.", fields={"response": [wrong]}) from error
    requirement.note_complete(request)
    return row


def remove(request: HttpRequest, *, user: User, pk: Any) -> Passkey:
    """Remove one's passkey; other sessions end, for one of them may be of who has it now.

    Raises Missing, RecentLogInNeeded."""
    if freshness.is_stale(freshness.proved_at(request)):
        raise RecentLogInNeeded
    with transaction.atomic():
        row = Passkey.objects.select_for_update().filter(pk=pk, user=user).first()
        if row is None:
            raise Missing("There is no such passkey; it may have been removed already.")
        Passkey.objects.filter(pk=row.pk).delete()
        sessions.end_all(user, keep=sessions.key_of(request))
        _record(request, user, "passkey.remove", row.name)
    if factors.of(user) is None and not keys.has_any(user):
        requirement.note_incomplete(request)
    return row


def _require(request: HttpRequest, user: User) -> None:
    require_possible(user)
    if freshness.is_stale(freshness.proved_at(request)):
        raise RecentLogInNeeded
    _require_room(user)


def _require_room(user: User) -> None:
    if Passkey.objects.filter(user=user).count() >= keys.MOST:
        raise WrongState(f"An account has at most {keys.MOST} passkeys. Remove one first.")


def _record(request: HttpRequest, user: User, action: str, what: str) -> None:
    message = f"{client_address(request)} {what}"
    record(by=user, action=action, target=f"user:{user.pk}", target_name=user.email, message=message)
