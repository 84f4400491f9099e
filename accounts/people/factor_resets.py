"""Resets of another person's second factor, its passkeys included, for one who lost the app and the recovery codes.

As with passwords: for an account that may approve or administer nothing happens before a second administrator consents,
so that one stolen administrator does not take the factor of another person away.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from accounts.access import sessions
from accounts.models import Passkey, PendingChange, SecondFactor, User
from accounts.people import pending, services
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, require_person
from audit.services import record
from common.errors import NotAllowed, WrongState

KIND = "second-factor.reset"


@transaction.atomic
def reset(*, user: User, by: User) -> Proposed | None:
    """Take the factor away and end the sessions; None: done. Raises NotAllowed, WrongState."""
    require_person(by, Role.ADMIN, GLOBAL, "reset another person's second factor")
    if user.pk == by.pk:
        raise NotAllowed("You cannot reset your own second factor. Remove the app or a passkey on your account page.")
    present = _present(user)
    if services.has_power(user):
        about = (
            f"{user.email}, {services.powers(user)}, logs in without their second factor; passkeys and sessions end."
        )
        return pending.propose(kind=KIND, by=by, about=about, target=f"user:{user.pk}", wanted=present, subject=user)
    _reset(user, by)
    return None


@transaction.atomic
def reset_on_the_server(*, user: User, by: str) -> None:
    """Take the factor away without consent: the command line's user owns the machine. Raises WrongState."""
    _present(user)
    _reset(user, by)


def register() -> None:
    pending.KINDS[KIND] = _consented


def _consented(row: PendingChange, by: User) -> None:
    user = User.objects.get(pk=int(row.subject_id or 0))
    present = _present(user)
    proposed = {row.wanted["factor"], *row.wanted.get("passkeys", [])}
    if not proposed.issuperset({present["factor"], *present["passkeys"]} - {""}):
        raise WrongState(f"{user.email} has set up another second factor since this was proposed: refuse it.")
    _reset(user, by)


def _present(user: User) -> dict[str, Any]:
    """Return what a reset takes away, by keys. Raises WrongState where that is nothing."""
    factor = SecondFactor.objects.filter(user=user).first()
    passkeys = [str(pk) for pk in Passkey.objects.filter(user=user).values_list("pk", flat=True)]
    if factor is None and not passkeys:
        raise WrongState(f"{user.email} has no second factor.")
    return {"factor": str(factor.pk) if factor else "", "passkeys": passkeys}


def _reset(user: User, by: User | str) -> None:
    SecondFactor.objects.filter(user=user).delete()
    passkeys, _ = Passkey.objects.filter(user=user).delete()
    after = {"sessions_ended": sessions.end_all(user), "passkeys_removed": passkeys}
    record(by=by, action=KIND, target=f"user:{user.pk}", target_name=user.email, after=after)
